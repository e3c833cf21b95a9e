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

using Bytes = std::unique_ptr<std::byte, AlignedDelete>;

// Null where there is none.
Bytes Allocate(size_t bytes) {
  return Bytes(
      static_cast<std::byte*>(::operator new(bytes, kAlignment, std::nothrow)));
}

struct Memory {
  Bytes bytes;
  size_t size = 0;

  std::byte* Reserve(size_t wanted) {
    if (wanted <= size) return bytes.get();
    bytes.reset();
    size = 0;
    bytes = Allocate(wanted);
    if (bytes != nullptr) size = wanted;
    return bytes.get();
  }

  void GiveBackWhatIsLarge() {
    if (size <= static_cast<size_t>(Backend::kThreadBytes)) return;
    bytes.reset();
    size = 0;
  }
};

// Leases whose memory is kept: a tile's, and that of what it gives way to. What
// nests deeper is rare.
constexpr size_t kKept = 2;

struct Leases {
  std::array<Memory, kKept> memory;
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
  bytes_ = depth < kKept ? leases.memory[depth].Reserve(bytes)
                         : Allocate(bytes).release();
}

ThreadMemory::~ThreadMemory() {
  Leases& leases = OfThread();
  const size_t depth = --leases.depth;
  if (depth < kKept) {
    leases.memory[depth].GiveBackWhatIsLarge();
  } else {
    const Bytes freed(bytes_);
  }
}

}  // namespace attention::cpu
