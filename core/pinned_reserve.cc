#include "core/pinned_reserve.h"

#include <sys/mman.h>

#include <boost/interprocess/mem_algo/rbtree_best_fit.hpp>
#include <boost/interprocess/sync/mutex_family.hpp>
#include <mutex>
#include <new>
#include <utility>

#include "absl/types/span.h"
#include "core/device_memory.h"

namespace attention {
namespace {

constexpr size_t kAlignment = 64;
// Pinned whole, and shared out in huge pages, where the system has them.
constexpr int64_t kHugePage = int64_t{2} << 20;

}  // namespace

// Pages of nobody else's, within which Boost's best fit keeps its own records.
class PinnedReserve::Memory {
 public:
  // Null where the system has no such memory, or does not pin it.
  static std::shared_ptr<Memory> Create(const Backend& backend, int64_t bytes) {
    const auto size =
        static_cast<size_t>((bytes + kHugePage - 1) / kHugePage * kHugePage);
    void* const begin = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (begin == MAP_FAILED) return nullptr;
    madvise(begin, size, MADV_HUGEPAGE);
    std::unique_ptr<PinnedMemory> pinned =
        backend.PinHostMemory({static_cast<std::byte*>(begin), size});
    if (pinned == nullptr) {
      munmap(begin, size);
      return nullptr;
    }
    return std::make_shared<Memory>(begin, size, std::move(pinned));
  }

  Memory(void* begin, size_t size, std::unique_ptr<PinnedMemory> pinned)
      : size_(size),
        pinned_(std::move(pinned)),
        blocks_(new (begin) Blocks(size, 0)) {}
  ~Memory() {
    void* const begin = blocks_;
    blocks_->~Blocks();
    if (pinned_->Release()) munmap(begin, size_);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  std::byte* Take(int64_t bytes) {
    const std::lock_guard lock(mutex_);
    return static_cast<std::byte*>(
        blocks_->allocate(static_cast<size_t>(bytes)));
  }
  void GiveBack(std::byte* block) {
    const std::lock_guard lock(mutex_);
    blocks_->deallocate(block);
  }
  int64_t size() const { return static_cast<int64_t>(size_); }

 private:
  // All blocks are aligned: one that is asked to align some leaves pieces
  // beside them, so that they do not fit where they were.
  using Blocks = boost::interprocess::rbtree_best_fit<
      boost::interprocess::null_mutex_family, void*, kAlignment>;

  const size_t size_;
  const std::unique_ptr<PinnedMemory> pinned_;
  std::mutex mutex_;
  Blocks* const blocks_;  // at the beginning of the memory
};

PinnedReserve::PinnedReserve(const Backend& backend, int64_t bytes) {
  if (bytes > 0) memory_ = Memory::Create(backend, bytes);
}

std::shared_ptr<std::byte> PinnedReserve::Take(int64_t bytes) const {
  std::byte* const block = memory_ == nullptr ? nullptr : memory_->Take(bytes);
  if (block == nullptr) return nullptr;
  return {block,
          [memory = memory_](std::byte* taken) { memory->GiveBack(taken); }};
}

int64_t PinnedReserve::size() const {
  return memory_ == nullptr ? 0 : memory_->size();
}

}  // namespace attention
