// Elementary functions on vectors. Included once per instruction set.
#if defined(ATTENTION_CORE_CPU_KERNELS_MATH_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef ATTENTION_CORE_CPU_KERNELS_MATH_INL_H_
#undef ATTENTION_CORE_CPU_KERNELS_MATH_INL_H_
#else
#define ATTENTION_CORE_CPU_KERNELS_MATH_INL_H_
#endif

#include <cstdint>

#include "core/cpu/kernels/sizes.h"
#include "hwy/highway.h"

#ifndef ATTENTION_UNROLL
#if defined(__clang__)
#define ATTENTION_UNROLL _Pragma("clang loop unroll(full)")
#else
#define ATTENTION_UNROLL _Pragma("GCC unroll 16")
#endif
#endif

// Compiled once per instruction set, into a namespace of its own each time.
// NOLINTBEGIN(misc-definitions-in-headers)
HWY_BEFORE_NAMESPACE();
namespace attention::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F = hn::CappedTag<float, kMaxLanes>;
using VF = hn::Vec<F>;

// The lesser of x and a limit, NaN where x is: Min alone differs between
// processors in what it makes of NaN.
HWY_INLINE VF AtMost(VF limit, VF x) {
#if HWY_ARCH_X86
  return hn::Min(limit, x);  // the second operand where one is NaN
#else
  return hn::IfThenElse(hn::Lt(limit, x), limit, x);
#endif
}

// 2^f for f in [-1/2, 1/2]: exact at 0, the polynomial itself within 2^-28.9,
// with its roundings within 1.4 * 2^-24 (SSE4, which has no fused
// multiply-adds: 1.8 * 2^-24).
HWY_INLINE VF PowerOfFraction(VF f) {
  const F d;
  VF p = hn::Set(d, 1.53533618e-4F);
  p = hn::MulAdd(p, f, hn::Set(d, 1.33988744e-3F));
  p = hn::MulAdd(p, f, hn::Set(d, 9.61843736e-3F));
  p = hn::MulAdd(p, f, hn::Set(d, 5.55033247e-2F));
  p = hn::MulAdd(p, f, hn::Set(d, 2.40226479e-1F));
  p = hn::MulAdd(p, f, hn::Set(d, 6.93147203e-1F));
  return hn::MulAdd(p, f, hn::Set(d, 1.0F));
}

#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86

// 2^x: NaN for NaN. What lies below the range of normal numbers is 0 where
// subnormal results are flushed. vreduceps takes away the nearest whole number,
// and gives 0 for an infinity, so that no result needs a mask.
HWY_INLINE VF Exp2(VF x) {
  constexpr int kLessNearest = 0x8;
  const VF f{_mm512_reduce_ps(x.raw, kLessNearest)};
  const VF whole = hn::Sub(x, f);
  return VF{_mm512_scalef_ps(PowerOfFraction(f).raw, whole.raw)};
}

#else

// 2^x: 0 below the range of normal numbers, NaN for NaN, whatever its bits; x
// at most 128.
HWY_INLINE VF Exp2(VF x) {
  const F d;
  const auto lost = hn::Lt(x, hn::Set(d, -126.0F));
  // 1.5 * 2^23 rounds to integers, 127 makes an exponent of the lowest bits.
  const VF magic = hn::Set(d, 12583039.0F);
  const VF shifted = hn::Add(x, magic);
  const VF whole = hn::Sub(shifted, magic);
  const hn::RebindToUnsigned<F> du;
  const VF power = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(du, shifted)));
  // A product, for a sum of bits would make a number of some NaNs.
  const VF result = hn::Mul(PowerOfFraction(hn::Sub(x, whole)), power);
  return hn::IfThenZeroElse(lost, result);
}

#endif

// What Exp2 takes of any x: its result is infinite, or NaN, from 128 on, and
// may be infinite from 127.5 on.
HWY_INLINE VF Clamped(VF x) {
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
  return x;  // goes to infinity by itself
#else
  return AtMost(hn::Set(F(), 128.0F), x);
#endif
}

// Four at once, so that their long chains of dependent steps overlap.
HWY_INLINE void Exp2Four(VF& x0, VF& x1, VF& x2, VF& x3) {
  x0 = Exp2(x0);
  x1 = Exp2(x1);
  x2 = Exp2(x2);
  x3 = Exp2(x3);
}

// m * 2^n for n a whole number and m between 1/2 and 2. Beyond 2^60 it may be
// anything that is larger, and as much smaller below 2^-60. NaN stays; that of
// m need not where n is infinite.
HWY_INLINE VF ScaleByPower(VF m, VF n) {
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
  return VF{_mm512_scalef_ps(m.raw, n.raw)};
#else
  const F d;
  const hn::RebindToSigned<F> di;
  const VF kept = hn::Max(hn::Min(n, hn::Set(d, 60.0F)), hn::Set(d, -60.0F));
  const auto exponent = hn::ShiftLeft<23>(hn::ConvertTo(di, kept));
  const VF result = hn::BitCast(d, hn::Add(hn::BitCast(di, m), exponent));
  const VF nan = hn::Add(m, n);
  return hn::IfThenElse(hn::IsNaN(nan), nan, result);
#endif
}

// e^(2x) for |x| <= 40, as accurate as FP32 allows: 2 x log2(e) in two parts.
HWY_INLINE VF ExpTwice(VF x) {
  const F d;
  const VF log2e2 = hn::Set(d, 2.88539008177792681F);
  const VF whole = hn::Round(hn::Mul(x, log2e2));
  // x - whole ln(2)/2, with ln(2)/2 as a sum of a short and a small number.
  VF r = hn::NegMulAdd(whole, hn::Set(d, 0.34667968750F), x);
  r = hn::NegMulAdd(whole, hn::Set(d, -1.06097220027e-4F), r);
  const VF f = hn::Mul(r, log2e2);
  const VF p = PowerOfFraction(f);
  const hn::RebindToSigned<F> di;
  const auto exponent = hn::ShiftLeft<23>(hn::ConvertTo(di, whole));
  return hn::BitCast(d, hn::Add(hn::BitCast(di, p), exponent));
}

// tanh(x), within 2 ulp, +0 for -0; the polynomial for small x is the one of
// Moshier's Cephes library, "tanhf".
HWY_INLINE VF Tanh(VF x) {
  const F d;
  const VF one = hn::Set(d, 1.0F);
  const VF magnitude = hn::Abs(x);
  const VF z = hn::Mul(x, x);
  VF p = hn::Set(d, -5.70498872745e-3F);
  p = hn::MulAdd(p, z, hn::Set(d, 2.06390887954e-2F));
  p = hn::MulAdd(p, z, hn::Set(d, -5.37397155531e-2F));
  p = hn::MulAdd(p, z, hn::Set(d, 1.33314422036e-1F));
  p = hn::MulAdd(p, z, hn::Set(d, -3.33332819422e-1F));
  const VF small = hn::MulAdd(hn::Mul(p, z), x, x);
  // Beyond 10 the result is 1.
  const VF e = ExpTwice(AtMost(hn::Set(d, 10.0F), magnitude));
  const VF large = hn::Sub(one, hn::Div(hn::Set(d, 2.0F), hn::Add(e, one)));
  return hn::IfThenElse(
      hn::Lt(magnitude, hn::Set(d, 0.625F)), small,
      hn::CopySign(hn::IfThenElse(hn::IsNaN(x), x, large), x));
}

}  // namespace attention::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
// NOLINTEND(misc-definitions-in-headers)

#endif  // include guard
