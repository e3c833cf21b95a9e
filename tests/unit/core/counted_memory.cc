#include "tests/unit/core/counted_memory.h"

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<int64_t> live{0};
std::atomic<int64_t> peak{0};
std::atomic<int64_t> until_failure{0};

void* Counted(void* memory) {
  const int64_t now = live +=
      static_cast<int64_t>(::malloc_usable_size(memory));
  int64_t before = peak;
  while (before < now && !peak.compare_exchange_weak(before, now)) {
  }
  return memory;
}

void Uncount(void* memory) {
  live -= static_cast<int64_t>(::malloc_usable_size(memory));
}

}  // namespace

// NOLINTBEGIN(bugprone-reserved-identifier): the linker's names
extern "C" {
void* __real_malloc(size_t size);
void* __real_calloc(size_t count, size_t size);
void* __real_realloc(void* memory, size_t size);
void* __real_aligned_alloc(size_t alignment, size_t size);
int __real_posix_memalign(void** memory, size_t alignment, size_t size);
void __real_free(void* memory);

void* __wrap_malloc(size_t size) { return Counted(__real_malloc(size)); }
void* __wrap_calloc(size_t count, size_t size) {
  return Counted(__real_calloc(count, size));
}
void* __wrap_realloc(void* memory, size_t size) {
  Uncount(memory);
  return Counted(__real_realloc(memory, size));
}
void* __wrap_aligned_alloc(size_t alignment, size_t size) {
  return Counted(__real_aligned_alloc(alignment, size));
}
int __wrap_posix_memalign(void** memory, size_t alignment, size_t size) {
  const int error = __real_posix_memalign(memory, alignment, size);
  if (error == 0) Counted(*memory);
  return error;
}
void __wrap_free(void* memory) {
  Uncount(memory);
  __real_free(memory);
}
}  // extern "C"
// NOLINTEND(bugprone-reserved-identifier)

// What is allocated by new, also in shared libraries.
void* operator new(size_t size) {
  if (until_failure > 0) {
    --until_failure;
    if (until_failure == 0) throw std::bad_alloc();
  }
  void* memory = std::malloc(std::max<size_t>(size, 1));
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  return std::malloc(std::max<size_t>(size, 1));
}
void* operator new(size_t size, std::align_val_t alignment,
                   const std::nothrow_t&) noexcept {
  void* memory = nullptr;
  const int error = posix_memalign(&memory, static_cast<size_t>(alignment),
                                   std::max<size_t>(size, 1));
  return error == 0 ? memory : nullptr;
}
void* operator new(size_t size, std::align_val_t alignment) {
  void* memory = operator new(size, alignment, std::nothrow);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t,
                     const std::nothrow_t&) noexcept {
  std::free(memory);
}

namespace attention::testing {

int64_t LiveBytes() { return live; }

int64_t PeakBytes() { return peak; }

void ForgetPeak() { peak = live.load(); }

void FailNewAt(int64_t call) { until_failure = call; }

bool NewHasFailed() { return until_failure == 0; }

}  // namespace attention::testing
