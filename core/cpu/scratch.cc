#include "core/cpu/scratch.h"

#include <array>
#include <memory>
#include <new>

#include "core/backend.h"

namespace attention::cpu {
namespace {

constexpr std::align_val_t kAlignment{64};

struct AlignedDelete {
  void operator()(std::byte* memory) const {
    ::operator delete(memory, kAlignment);
  }
};

struct Memory {
  std::unique_ptr<std::byte, AlignedDelete> bytes;
  size_t size = 0;

  std::byte* Reserve(size_t wanted) {
    if (wanted <= size) return bytes.get();
    bytes.reset();
    size = 0;
    bytes.reset(static_cast<std::byte*>(
        ::operator new(wanted, kAlignment, std::nothrow)));
    if (bytes != nullptr) size = wanted;
    return bytes.get();
  }

  void GiveBackWhatIsLarge() {
    if (size <= static_cast<size_t>(Backend::kThreadBytes)) return;
    bytes.reset();
    size = 0;
  }
};

// How deep leases nest: a tile, and what it gives way to.
constexpr size_t kDepth = 2;

struct Leases {
  std::array<Memory, kDepth> memory;
  size_t depth = 0;
};

Leases& OfThread() {
  thread_local Leases leases;
  return leases;
}

}  // namespace

ThreadMemory::ThreadMemory(size_t bytes) {
  Leases& leases = OfThread();
  const size_t depth = leases.depth++;
  bytes_ = depth < kDepth ? leases.memory[depth].Reserve(bytes) : nullptr;
}

ThreadMemory::~ThreadMemory() {
  Leases& leases = OfThread();
  const size_t depth = --leases.depth;
  if (depth < kDepth) leases.memory[depth].GiveBackWhatIsLarge();
}

}  // namespace attention::cpu
