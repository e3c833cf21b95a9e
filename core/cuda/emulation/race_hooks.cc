// What GCC and Clang call before every access to memory in code that is
// compiled with -fsanitize=thread: here it goes to the emulation instead of the
// thread sanitizer, which is not linked.

#include <cstddef>
#include <cstdint>

#include "core/cuda/emulation/emulation.h"

using attention::cuda::emulation::NoteAccess;

// NOLINTBEGIN(bugprone-reserved-identifier): the compilers' names.
#define ATTENTION_HOOKS(bytes)                        \
  void __tsan_read##bytes(void* address) {            \
    NoteAccess(address, bytes, false);                \
  }                                                   \
  void __tsan_write##bytes(void* address) {           \
    NoteAccess(address, bytes, true);                 \
  }                                                   \
  void __tsan_unaligned_read##bytes(void* address) {  \
    NoteAccess(address, bytes, false);                \
  }                                                   \
  void __tsan_unaligned_write##bytes(void* address) { \
    NoteAccess(address, bytes, true);                 \
  }

extern "C" {

ATTENTION_HOOKS(1)
ATTENTION_HOOKS(2)
ATTENTION_HOOKS(4)
ATTENTION_HOOKS(8)
ATTENTION_HOOKS(16)

void __tsan_read_range(void* address, size_t bytes) {
  NoteAccess(address, static_cast<int64_t>(bytes), false);
}
void __tsan_write_range(void* address, size_t bytes) {
  NoteAccess(address, static_cast<int64_t>(bytes), true);
}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit(void*) {}
void __tsan_init() {}

// Kernels have no atomic operations; the code around them has.
int __tsan_atomic32_fetch_add(volatile int* value, int by, int) {
  return __atomic_fetch_add(value, by, __ATOMIC_SEQ_CST);
}
int __tsan_atomic32_fetch_sub(volatile int* value, int by, int) {
  return __atomic_fetch_sub(value, by, __ATOMIC_SEQ_CST);
}

}  // extern "C"
// NOLINTEND(bugprone-reserved-identifier)
