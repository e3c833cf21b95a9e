#include "core/cpu/scratch.h"

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
};

thread_local Memory memory;

}  // namespace

std::byte* ThreadMemory(size_t bytes) {
  if (bytes > memory.size) {
    memory.bytes.reset();
    memory.size = 0;
    memory.bytes.reset(static_cast<std::byte*>(
        ::operator new(bytes, kAlignment, std::nothrow)));
    if (memory.bytes != nullptr) memory.size = bytes;
  }
  // What was freed is not what is there: reset() put another into its place.
  // NOLINTNEXTLINE(clang-analyzer-cplusplus.NewDelete)
  return memory.bytes.get();
}

void GiveBackThreadMemory() {
  if (memory.size <= static_cast<size_t>(Backend::kThreadBytes)) return;
  memory.bytes.reset();
  memory.size = 0;
}

}  // namespace attention::cpu
