// Rows of INT8 and FP8 as numbers of BF16, for products of BF16 that take their
// rows packed. Included once per instruction set.
#if defined(ATTENTION_CORE_CPU_KERNELS_BF16_BYTES_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef ATTENTION_CORE_CPU_KERNELS_BF16_BYTES_INL_H_
#undef ATTENTION_CORE_CPU_KERNELS_BF16_BYTES_INL_H_
#else
#define ATTENTION_CORE_CPU_KERNELS_BF16_BYTES_INL_H_
#endif

#include "core/cpu/kernels/bytes-inl.h"
#include "core/cpu/kernels/convert-inl.h"
#include "core/cpu/kernels/math-inl.h"
#include "hwy/highway.h"

// Compiled once per instruction set, into a namespace of its own each time.
// NOLINTBEGIN(misc-definitions-in-headers)
HWY_BEFORE_NAMESPACE();
namespace attention::cpu::HWY_NAMESPACE {

// A scale, as the product of the two. Elements have no more bits than BF16, so
// that they take the power of two exactly. Neither passes FP32's range where
// the product of element and scale does not: the power is above a scale below
// 1, and no larger than one that is not. A subnormal scale counts as 0.
struct SplitScale {
  float power;
  float rest;  // 0.5 to 2
};

HWY_INLINE SplitScale SplitOf(float scale) {
  const uint32_t bits = BitsOfFloat(scale);
  const SplitScale at_least_1 = {FloatOfBits(bits & 0x7F800000U),
                                 FloatOfBits((bits & 0x7FFFFFU) | 0x3F800000U)};
  if (scale >= 1.0F) return at_least_1;
  return {2.0F * at_least_1.power, 0.5F * at_least_1.rest};
}

// Scales whose products with elements, up to 448, may be infinite.
inline constexpr float kLeastInfiniteScale = 0x1p119F;

// A vector of elements times the power of a scale, as BF16. kInfinite: where
// the whole product is infinite, so is this.
template <Element kType, bool kInfinite>
HWY_INLINE hn::VFromD<Halves> BrainsOf(const unsigned char* row, int64_t index,
                                       const SplitScale& scale) {
  VF product = hn::Mul(LoadWide<kType>(row, index), hn::Set(F(), scale.power));
  if constexpr (kInfinite) {
    const VF whole = hn::Mul(product, hn::Set(F(), scale.rest));
    product = hn::IfThenElse(hn::IsInf(whole), whole, product);
  }
  const auto bits = hn::BitCast(hn::RebindToUnsigned<F>(), product);
  return hn::TruncateTo(Halves(), hn::ShiftRight<16>(bits));
}

// A row, and zeros up to `padded_width` elements, a multiple of the lanes.
template <Element kType, bool kInfinite>
HWY_INLINE void RowOfBrains(const unsigned char* row, int64_t column_stride,
                            int64_t width, const SplitScale& scale,
                            uint16_t* to, int64_t padded_width) {
  constexpr auto kLanes = static_cast<int64_t>(hn::MaxLanes(F()));
  int64_t i = 0;
  for (; column_stride == 1 && i + kLanes <= width; i += kLanes) {
    hn::StoreU(BrainsOf<kType, kInfinite>(row, i, scale), Halves(), to + i);
  }
  for (; i < padded_width; i += kLanes) {
    HWY_ALIGN unsigned char piece[kLanes] = {};
    const int64_t count = HWY_MIN(kLanes, width - i);
    for (int64_t k = 0; k < count; ++k) piece[k] = row[(i + k) * column_stride];
    hn::StoreU(BrainsOf<kType, kInfinite>(piece, 0, scale), Halves(), to + i);
  }
}

template <Element kType>
inline void RowsOfBrains(const RowSource& from, int64_t rows, int64_t width,
                         float* to, int64_t to_stride, float* scales) {
  for (int64_t r = 0; r < rows; ++r) {
    const float whole = ScaleOf(from, r);
    const SplitScale scale = SplitOf(whole);
    scales[r] = scale.rest;
    const auto copy = whole < kLeastInfiniteScale ? RowOfBrains<kType, false>
                                                  : RowOfBrains<kType, true>;
    copy(from.data + r * from.row_stride, from.column_stride, width, scale,
         reinterpret_cast<uint16_t*>(to + r * to_stride), 2 * to_stride);
  }
}

inline void CopyBytesAsBf16(const RowSource& from, int64_t rows, int64_t width,
                            float* to, int64_t to_stride, float* scales) {
  if (from.type == Element::kInt8) {
    return RowsOfBrains<Element::kInt8>(from, rows, width, to, to_stride,
                                        scales);
  }
  RowsOfBrains<Element::kFloat8>(from, rows, width, to, to_stride, scales);
}

}  // namespace attention::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
// NOLINTEND(misc-definitions-in-headers)

#endif  // include guard
