#ifndef ATTENTION_CORE_CPU_SUBNORMALS_H_
#define ATTENTION_CORE_CPU_SUBNORMALS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

#include "core/cpu/kernels.h"
#include "core/validate.h"
#include "hwy/base.h"

#if HWY_ARCH_X86
#include <xmmintrin.h>
#endif

namespace attention::cpu {

/// While it lives, this thread's SSE and AVX arithmetic reads subnormal numbers
/// as 0 and writes 0 for them. An instruction that meets one otherwise takes a
/// hundred times as long (Intel's optimization manual, "Floating-Point
/// Assists"), which a caller could use to hold up others. Elsewhere than on x86
/// it does nothing.
class SubnormalsAreZero {
 public:
#if HWY_ARCH_X86
  SubnormalsAreZero() : before_(_mm_getcsr()) {
    _mm_setcsr(before_ | kFlushToZero | kDenormalsAreZero);
  }
  ~SubnormalsAreZero() { _mm_setcsr(before_); }
#else
  SubnormalsAreZero() = default;
  ~SubnormalsAreZero() = default;
#endif
  SubnormalsAreZero(const SubnormalsAreZero&) = delete;
  SubnormalsAreZero& operator=(const SubnormalsAreZero&) = delete;

 private:
#if HWY_ARCH_X86
  static constexpr unsigned kFlushToZero = 1U << 15;
  static constexpr unsigned kDenormalsAreZero = 1U << 6;
  const unsigned before_;
#endif
};

/// Results below kTinyResult (kernels.h) whose values are below this may have
/// lost what counts in them to SubnormalsAreZero.
inline constexpr float kTinyValue = 1e-12F;

/// Which values of a problem are tiny: other than 0 and below kTinyValue. What
/// it has looked for once it remembers. Safe for several threads at once.
class TinyValues {
 public:
  TinyValues(const ValidatedProblem& problem, const Kernels& kernels)
      : problem_(problem), kernels_(kernels) {}

  /// Whether any value of this batch entry's head is.
  bool In(int64_t batch, int64_t kv_head);

 private:
  bool Search(int64_t batch, int64_t kv_head) const;

  const ValidatedProblem& problem_;
  const Kernels& kernels_;
  std::mutex mutex_;
  std::map<std::pair<int64_t, int64_t>, bool> known_;
};

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_SUBNORMALS_H_
