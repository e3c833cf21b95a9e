// Elements of one byte, INT8 and FP8, as FP32. Included once per instruction
// set.
#if defined(ATTENTION_CORE_CPU_KERNELS_BYTES_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef ATTENTION_CORE_CPU_KERNELS_BYTES_INL_H_
#undef ATTENTION_CORE_CPU_KERNELS_BYTES_INL_H_
#else
#define ATTENTION_CORE_CPU_KERNELS_BYTES_INL_H_
#endif

#include <cstring>

#include "core/cpu/kernels/arguments.h"
#include "core/cpu/kernels/math-inl.h"
#include "hwy/highway.h"

// Where the processor itself converts FP16.
#undef ATTENTION_HARDWARE_FP16
#if (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2) || HWY_ARCH_ARM
#define ATTENTION_HARDWARE_FP16 1
#else
#define ATTENTION_HARDWARE_FP16 0
#endif

// Compiled once per instruction set, into a namespace of its own each time.
// NOLINTBEGIN(misc-definitions-in-headers)
HWY_BEFORE_NAMESPACE();
namespace attention::cpu::HWY_NAMESPACE {

// Elements of such a type have a scale, one for each row.
template <Element kType>
constexpr bool HasScale() {
  return kType == Element::kInt8 || kType == Element::kFloat8;
}

// Of row `row`; 1 where rows have none.
HWY_INLINE float ScaleOf(const RowSource& rows, int64_t row) {
  if (rows.scales == nullptr) return 1.0F;
  float scale;
  memcpy(&scale, rows.scales + row * rows.scale_stride, sizeof(scale));
  return scale;
}

HWY_INLINE VF WidenInt8(const int8_t* from) {
  const F d;
  const hn::RebindToSigned<F> di;
  const hn::Rebind<int8_t, F> bytes;
  return hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(bytes, from)));
}

#if ATTENTION_HARDWARE_FP16
// An exponent of FP8 is that of FP16 less 8, and both count what is below their
// least exponent alike: the bits are those of an FP16 number, 256 times too
// small. NaN, where all bits but the sign are set, would be 480; its sign
// stays.
HWY_INLINE VF WidenFloat8(const uint8_t* from) {
  const F d;
  const hn::Rebind<int8_t, F> bytes;
  const hn::Rebind<int16_t, F> di16;
  const hn::Rebind<hwy::float16_t, F> d16;
  const auto element = hn::PromoteTo(
      di16, hn::LoadU(bytes, reinterpret_cast<const int8_t*>(from)));
  // Its sign comes twice.
  const auto bits =
      hn::AndNot(hn::Set(di16, 1 << 14), hn::ShiftLeft<7>(element));
  const VF wide =
      hn::Mul(hn::PromoteTo(d, hn::BitCast(d16, bits)), hn::Set(d, 256.0F));
  return hn::IfThenElse(hn::Eq(hn::Abs(wide), hn::Set(d, 480.0F)),
                        hn::Or(wide, hn::NaN(d)), wide);
}
#else
// An exponent of FP8 is that of FP32 less 120. Below the least one, 1, an
// element counts eighths of the smallest normal number, 2^-6, and has no
// implicit 1: it is given one, which is then subtracted. No step meets an FP32
// number that is subnormal, which may count as 0.
HWY_INLINE VF WidenFloat8(const uint8_t* from) {
  const F d;
  const hn::RebindToSigned<F> di;
  const hn::Rebind<uint8_t, F> bytes;
  constexpr int32_t kMagnitude = 0x7F;  // NaN where all of it is set
  const auto element = hn::PromoteTo(di, hn::LoadU(bytes, from));
  const auto magnitude = hn::And(element, hn::Set(di, kMagnitude));
  const auto sign = hn::ShiftLeft<24>(hn::Xor(element, magnitude));
  const auto normal =
      hn::Add(hn::ShiftLeft<20>(magnitude), hn::Set(di, 120 << 23));
  const auto with_one = hn::Add(normal, hn::Set(di, 1 << 23));
  const auto subnormal =
      hn::BitCast(di, hn::Sub(hn::BitCast(d, with_one), hn::Set(d, 0x1p-6F)));
  auto bits =
      hn::IfThenElse(hn::Lt(magnitude, hn::Set(di, 8)), subnormal, normal);
  bits = hn::IfThenElse(hn::Eq(magnitude, hn::Set(di, kMagnitude)),
                        hn::Set(di, 0x7FC00000), bits);
  return hn::BitCast(d, hn::Or(bits, sign));
}
#endif

// One element, by the same steps.
HWY_INLINE float FromFloat8(uint8_t element) {
  uint8_t elements[hn::MaxLanes(F())] = {element};
  return hn::GetLane(WidenFloat8(elements));
}

}  // namespace attention::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
// NOLINTEND(misc-definitions-in-headers)

#endif  // include guard
