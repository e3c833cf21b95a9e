#ifndef ATTENTION_CORE_CUDA_EMULATION_FIBER_ANNOTATIONS_H_
#define ATTENTION_CORE_CUDA_EMULATION_FIBER_ANNOTATIONS_H_

#include <cstddef>

// What the sanitizers want to know about fibers, which run on stacks that they
// have not seen: nothing in other builds.

#if defined(__SANITIZE_ADDRESS__)
#define ATTENTION_FIBERS_UNDER_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ATTENTION_FIBERS_UNDER_ASAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define ATTENTION_FIBERS_UNDER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define ATTENTION_FIBERS_UNDER_TSAN 1
#endif
#endif

#ifdef ATTENTION_FIBERS_UNDER_ASAN
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef ATTENTION_FIBERS_UNDER_TSAN
#include <sanitizer/tsan_interface.h>
#endif

namespace attention::cuda::emulation {

class SchedulerAnnotations;

/// Of one fiber.
class FiberAnnotations {
 public:
  void Create(const void* stack, size_t bytes) {
    stack_ = stack;
    bytes_ = bytes;
#ifdef ATTENTION_FIBERS_UNDER_TSAN
    fiber_ = __tsan_create_fiber(0);
#endif
  }
  void Destroy() const {
#ifdef ATTENTION_FIBERS_UNDER_TSAN
    __tsan_destroy_fiber(fiber_);
#endif
  }
  /// Around a switch back to the scheduler.
  void Leave(const SchedulerAnnotations& scheduler);
  void Entered(SchedulerAnnotations& scheduler) const;
  /// Before the last one.
  static void LeaveForever(const SchedulerAnnotations& scheduler);

 private:
  friend class SchedulerAnnotations;
  [[maybe_unused]] const void* stack_ = nullptr;
  [[maybe_unused]] size_t bytes_ = 0;
  [[maybe_unused]] void* fake_stack_ = nullptr;
  [[maybe_unused]] void* fiber_ = nullptr;
};

/// Of the stack that fibers are resumed from.
class SchedulerAnnotations {
 public:
  /// Around a switch to a fiber.
  void Enter(const FiberAnnotations& fiber) {
#ifdef ATTENTION_FIBERS_UNDER_ASAN
    __sanitizer_start_switch_fiber(&fake_stack_, fiber.stack_, fiber.bytes_);
#endif
#ifdef ATTENTION_FIBERS_UNDER_TSAN
    fiber_ = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(fiber.fiber_, 0);
#endif
    static_cast<void>(fiber);
  }
  void Returned() const {
#ifdef ATTENTION_FIBERS_UNDER_ASAN
    __sanitizer_finish_switch_fiber(fake_stack_, nullptr, nullptr);
#endif
  }
  /// The first thing in a new fiber.
  void Left() {
#ifdef ATTENTION_FIBERS_UNDER_ASAN
    __sanitizer_finish_switch_fiber(nullptr, &stack_, &bytes_);
#endif
  }

 private:
  friend class FiberAnnotations;
  [[maybe_unused]] const void* stack_ = nullptr;
  [[maybe_unused]] size_t bytes_ = 0;
  [[maybe_unused]] void* fake_stack_ = nullptr;
  [[maybe_unused]] void* fiber_ = nullptr;
};

inline void FiberAnnotations::Leave(const SchedulerAnnotations& scheduler) {
#ifdef ATTENTION_FIBERS_UNDER_ASAN
  __sanitizer_start_switch_fiber(&fake_stack_, scheduler.stack_,
                                 scheduler.bytes_);
#endif
#ifdef ATTENTION_FIBERS_UNDER_TSAN
  __tsan_switch_to_fiber(scheduler.fiber_, 0);
#endif
  static_cast<void>(scheduler);
}

inline void FiberAnnotations::Entered(SchedulerAnnotations& scheduler) const {
#ifdef ATTENTION_FIBERS_UNDER_ASAN
  __sanitizer_finish_switch_fiber(fake_stack_, &scheduler.stack_,
                                  &scheduler.bytes_);
#endif
  static_cast<void>(scheduler);
}

inline void FiberAnnotations::LeaveForever(
    const SchedulerAnnotations& scheduler) {
#ifdef ATTENTION_FIBERS_UNDER_ASAN
  __sanitizer_start_switch_fiber(nullptr, scheduler.stack_, scheduler.bytes_);
#endif
#ifdef ATTENTION_FIBERS_UNDER_TSAN
  __tsan_switch_to_fiber(scheduler.fiber_, 0);
#endif
  static_cast<void>(scheduler);
}

}  // namespace attention::cuda::emulation

#endif  // ATTENTION_CORE_CUDA_EMULATION_FIBER_ANNOTATIONS_H_
