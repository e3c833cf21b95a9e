#include "server/memory/buffer_pool.h"

#include <sanitizer/asan_interface.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <new>
#include <utility>

namespace attention::server {

// The last bytes before a buffer, so that a pointer to it is all that Return()
// needs. A large buffer has a page for it and begins with the next one.
struct alignas(BufferPool::kAlignment) BufferPool::Block {
  int64_t bytes;  // of the buffer, rounded; less than kLeastPooled: not pooled
  Block* next;    // while it is kept

  std::byte* buffer() { return reinterpret_cast<std::byte*>(this + 1); }
};

namespace {

constexpr int64_t kPage = 4096;
constexpr int64_t kLeastExponent =
    std::countr_zero(static_cast<uint64_t>(BufferPool::kLeastPooled));
constexpr int64_t kMostSize = std::numeric_limits<int64_t>::max() / 2;
// What the process keeps for its next messages at most: the tensors of a
// request of 12 MiB with its reply. Of many requests, some are still in the
// blocks that gRPC reads into while others are gathered here: what were kept
// for all of them would lie beside those blocks, unused.
constexpr int64_t kMostKeptByProcess = 16 << 20;

// The exponent of an eighth of the power of two at or below `value` >= 8.
int EighthExponent(int64_t value) {
  const auto width = std::bit_width(static_cast<uint64_t>(value));
  return std::max(static_cast<int>(width) - 4, 0);
}

// The next eighth of a power of two, for kLeastPooled and more: 12.5% more at
// most, whole pages.
int64_t Round(int64_t size) {
  const int64_t step = int64_t{1} << EighthExponent(size);
  return (size + step - 1) & -step;
}

constexpr std::align_val_t kNewAlignment{BufferPool::kAlignment};

// Pages straight from the kernel and back, so that what is given back does not
// depend on what else lies in the heap. Where the sanitizers watch, memory that
// they know.
#ifdef __SANITIZE_ADDRESS__
void* MapPages(int64_t bytes) {
  return ::operator new (static_cast<size_t>(bytes),
                         std::align_val_t{static_cast<size_t>(kPage)},
                         std::nothrow);
}
void UnmapPages(void* pages, int64_t) {
  ::operator delete (pages, std::align_val_t{static_cast<size_t>(kPage)});
}
#else
void* MapPages(int64_t bytes) {
  void* pages =
      ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return pages == MAP_FAILED ? nullptr : pages;
}
void UnmapPages(void* pages, int64_t bytes) {
  ::munmap(pages, static_cast<size_t>(bytes));
}
#endif

}  // namespace

BufferPool& BufferPool::OfProcess() {
  static auto* pool = new BufferPool(kMostKeptByProcess);
  return *pool;
}

int BufferPool::ClassOf(int64_t bytes) {
  const int exponent = EighthExponent(bytes);
  const int64_t eighth = (bytes >> exponent) & 7;
  return static_cast<int>((exponent + 3 - kLeastExponent) * 8 + eighth);
}

// A block's whole memory begins before its page of bookkeeping.
void BufferPool::Unmap(Block* block) {
  const int64_t bytes = block->bytes;
  ASAN_UNPOISON_MEMORY_REGION(block->buffer(), static_cast<size_t>(bytes));
  UnmapPages(block->buffer() - kPage, bytes + kPage);
}

BufferPool::Block* BufferPool::Map(int64_t bytes) {
  void* pages = MapPages(bytes + kPage);
  if (pages == nullptr) return nullptr;
  std::byte* buffer = static_cast<std::byte*>(pages) + kPage;
  return new (buffer - sizeof(Block)) Block{bytes, nullptr};
}

BufferPool::~BufferPool() {
  UnmapAll(Unlink(std::numeric_limits<int64_t>::max()));
}

void BufferPool::UnmapAll(Block* blocks) {
  while (blocks != nullptr) Unmap(std::exchange(blocks, blocks->next));
}

BufferPool::Block* BufferPool::Unlink(int64_t bytes) {
  Block* unlinked = nullptr;
  while (bytes > 0 && kept_ > 0) {
    SizeClass* oldest = nullptr;
    for (SizeClass& size_class : classes_) {
      if (size_class.kept == nullptr) continue;
      if (oldest == nullptr || size_class.last_take < oldest->last_take) {
        oldest = &size_class;
      }
    }
    Block* block = std::exchange(oldest->kept, oldest->kept->next);
    block->next = std::exchange(unlinked, block);
    kept_ -= block->bytes;
    bytes -= block->bytes;
  }
  return unlinked;
}

std::byte* BufferPool::Take(int64_t size) {
  if (size < kLeastPooled) {
    void* memory = ::operator new(sizeof(Block) + static_cast<size_t>(size),
                                  kNewAlignment, std::nothrow);
    if (memory == nullptr) return nullptr;
    return (new (memory) Block{size, nullptr})->buffer();
  }
  if (size > kMostSize) return nullptr;
  const int64_t bytes = Round(size);
  Block* block = nullptr;
  Block* given_back = nullptr;
  {
    const std::lock_guard lock(mutex_);
    ++takes_;
    if (const int index = ClassOf(bytes); index < kClasses) {
      SizeClass& size_class = classes_[index];
      size_class.last_take = takes_;
      block = size_class.kept;
      if (block != nullptr) size_class.kept = block->next;
    }
    if (block != nullptr) {
      kept_ -= bytes;
    } else {
      given_back = Unlink(bytes);
    }
  }
  UnmapAll(given_back);
  if (block == nullptr) block = Map(bytes);
  if (block == nullptr) return nullptr;
  ASAN_UNPOISON_MEMORY_REGION(block->buffer(), static_cast<size_t>(size));
  ASAN_POISON_MEMORY_REGION(block->buffer() + size,
                            static_cast<size_t>(bytes - size));
  return block->buffer();
}

void BufferPool::Return(std::byte* buffer) {
  if (buffer == nullptr) return;
  Block* block = reinterpret_cast<Block*>(buffer) - 1;
  const int64_t bytes = block->bytes;
  if (bytes < kLeastPooled) {
    ::operator delete(block, kNewAlignment);
    return;
  }
  ASAN_POISON_MEMORY_REGION(buffer, static_cast<size_t>(bytes));
  {
    const std::lock_guard lock(mutex_);
    const int index = ClassOf(bytes);
    if (index < kClasses && bytes <= most_kept_ - kept_) {
      block->next = std::exchange(classes_[index].kept, block);
      kept_ += bytes;
      return;
    }
  }
  Unmap(block);
}

int64_t BufferPool::kept() const {
  const std::lock_guard lock(mutex_);
  return kept_;
}

}  // namespace attention::server
