// A library to be loaded before all others (LD_PRELOAD): allocations and
// threads fail, and disks hang, in a process as a test's FaultPlan says.
// Nothing here allocates.
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>

#include "tests/support/faults/fault_plan.h"

namespace attention::test {
namespace {

// Null in a process that is to have no faults. Allocations come before any
// constructor, so it is mapped at the first one; a second thread may map it
// once more, which does no harm.
FaultPlan* Plan() {
  static std::atomic<bool> looked{false};
  static std::atomic<FaultPlan*> plan{nullptr};
  if (looked) return plan;
  const char* const path = std::getenv(kFaultPlanVariable);
  const int file = path == nullptr ? -1 : ::open(path, O_RDWR | O_CLOEXEC);
  if (file >= 0) {
    void* const mapped = ::mmap(nullptr, sizeof(FaultPlan),
                                PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    ::close(file);
    if (mapped != MAP_FAILED) plan = static_cast<FaultPlan*>(mapped);
  }
  looked = true;
  return plan;
}

bool IsOfGrpc(void* code) {
  Dl_info info;
  return ::dladdr(code, &info) != 0 && info.dli_fname != nullptr &&
         std::strstr(info.dli_fname, "libgpr") != nullptr;
}

// A thread that is made by the function at `caller`.
bool ThreadFails(void* caller) {
  FaultPlan* const plan = Plan();
  if (plan == nullptr || (plan->spare_grpc != 0 && IsOfGrpc(caller))) {
    return false;
  }
  return plan->threads.Next();
}

bool AllocationFails(size_t bytes) {
  FaultPlan* const plan = Plan();
  return plan != nullptr &&
         static_cast<int64_t>(bytes) >= plan->large_bytes.load() &&
         plan->large_allocations.Next();
}

bool SyncHangs() {
  FaultPlan* const plan = Plan();
  return plan != nullptr && plan->syncs.Next();
}

// The function that would be called without this library.
template <typename Function>
Function* Next(Function*& found, const char* name) {
  if (found == nullptr) {
    found = reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
  }
  return found;
}

}  // namespace
}  // namespace attention::test

using attention::test::AllocationFails;
using attention::test::Next;

// NOLINTBEGIN(readability-inconsistent-declaration-parameter-name)
extern "C" {

void* malloc(size_t size) {
  static void* (*next)(size_t);
  if (AllocationFails(size)) return errno = ENOMEM, nullptr;
  return Next(next, "malloc")(size);
}

void* calloc(size_t count, size_t size) {
  static void* (*next)(size_t, size_t);
  if (AllocationFails(count * size)) return errno = ENOMEM, nullptr;
  return Next(next, "calloc")(count, size);
}

void* realloc(void* block, size_t size) {
  static void* (*next)(void*, size_t);
  if (AllocationFails(size)) return errno = ENOMEM, nullptr;
  return Next(next, "realloc")(block, size);
}

void* aligned_alloc(size_t alignment, size_t size) {
  static void* (*next)(size_t, size_t);
  if (AllocationFails(size)) return errno = ENOMEM, nullptr;
  return Next(next, "aligned_alloc")(alignment, size);
}

int posix_memalign(void** block, size_t alignment, size_t size) {
  static int (*next)(void**, size_t, size_t);
  if (AllocationFails(size)) return ENOMEM;
  return Next(next, "posix_memalign")(block, alignment, size);
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                   void* (*run)(void*), void* argument) {
  static int (*next)(pthread_t*, const pthread_attr_t*, void* (*)(void*),
                     void*);
  if (attention::test::ThreadFails(__builtin_return_address(0))) return EAGAIN;
  return Next(next, "pthread_create")(thread, attributes, run, argument);
}

int fsync(int file) {
  static int (*next)(int);
  if (attention::test::SyncHangs()) {
    while (true) ::pause();
  }
  return Next(next, "fsync")(file);
}

}  // extern "C"
// NOLINTEND(readability-inconsistent-declaration-parameter-name)

// C++'s own, which would otherwise be the allocator's and not ask malloc().

void* operator new(size_t size) {
  void* const block = malloc(size);
  if (block == nullptr) throw std::bad_alloc();
  return block;
}

void* operator new(size_t size, const std::nothrow_t&) noexcept {
  return malloc(size);
}

void* operator new(size_t size, std::align_val_t alignment,
                   const std::nothrow_t&) noexcept {
  void* block = nullptr;
  const int error =
      posix_memalign(&block, static_cast<size_t>(alignment), size);
  return error == 0 ? block : nullptr;
}

void* operator new(size_t size, std::align_val_t alignment) {
  void* const block = operator new(size, alignment, std::nothrow);
  if (block == nullptr) throw std::bad_alloc();
  return block;
}

void* operator new[](size_t size) { return operator new(size); }

void* operator new[](size_t size, const std::nothrow_t& tag) noexcept {
  return operator new(size, tag);
}

void* operator new[](size_t size, std::align_val_t alignment) {
  return operator new(size, alignment);
}

void* operator new[](size_t size, std::align_val_t alignment,
                     const std::nothrow_t& tag) noexcept {
  return operator new(size, alignment, tag);
}
