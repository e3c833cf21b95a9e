#ifndef ATTENTION_CORE_CPU_FLUSH_SUBNORMALS_H_
#define ATTENTION_CORE_CPU_FLUSH_SUBNORMALS_H_

#include "hwy/base.h"

#if HWY_ARCH_X86
#include <xmmintrin.h>
#endif

namespace attention::cpu {

#if HWY_ARCH_X86
// Bits of MXCSR.
inline constexpr unsigned kFlushToZero = 1U << 15;
inline constexpr unsigned kDenormalsAreZero = 1U << 6;
#endif

/// While it lives, this thread's SSE and AVX arithmetic reads subnormal numbers
/// as 0 and writes 0 for them. An instruction that meets one otherwise takes a
/// hundred times as long (Intel's optimization manual, "Floating-Point
/// Assists"), which a caller could use to hold up others. Elsewhere than on x86
/// it does nothing.
class [[maybe_unused]] FlushSubnormals {
 public:
#if HWY_ARCH_X86
  FlushSubnormals() : before_(_mm_getcsr()) {
    _mm_setcsr(before_ | kFlushToZero | kDenormalsAreZero);
  }
  ~FlushSubnormals() { _mm_setcsr(before_); }
#else
  FlushSubnormals() = default;
  ~FlushSubnormals() = default;
#endif
  FlushSubnormals(const FlushSubnormals&) = delete;
  FlushSubnormals& operator=(const FlushSubnormals&) = delete;

 private:
#if HWY_ARCH_X86
  const unsigned before_;
#endif
};

/// The opposite: while it lives, this thread's arithmetic is IEEE 754's again.
class [[maybe_unused]] KeepSubnormals {
 public:
#if HWY_ARCH_X86
  KeepSubnormals() : before_(_mm_getcsr()) {
    _mm_setcsr(before_ & ~(kFlushToZero | kDenormalsAreZero));
  }
  ~KeepSubnormals() { _mm_setcsr(before_); }
#else
  KeepSubnormals() = default;
  ~KeepSubnormals() = default;
#endif
  KeepSubnormals(const KeepSubnormals&) = delete;
  KeepSubnormals& operator=(const KeepSubnormals&) = delete;

 private:
#if HWY_ARCH_X86
  const unsigned before_;
#endif
};

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_FLUSH_SUBNORMALS_H_
