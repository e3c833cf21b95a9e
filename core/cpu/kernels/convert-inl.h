// Rows of any element type, layout and alignment into rows of FP32.
// Included once per instruction set.
#if defined(ATTENTION_CORE_CPU_KERNELS_CONVERT_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef ATTENTION_CORE_CPU_KERNELS_CONVERT_INL_H_
#undef ATTENTION_CORE_CPU_KERNELS_CONVERT_INL_H_
#else
#define ATTENTION_CORE_CPU_KERNELS_CONVERT_INL_H_
#endif

#include <cstring>

#include "core/cpu/kernels/arguments.h"
#include "core/cpu/kernels/bytes-inl.h"
#include "core/cpu/kernels/math-inl.h"
#include "hwy/highway.h"

// Compiled once per instruction set, into a namespace of its own each time.
// NOLINTBEGIN(misc-definitions-in-headers)
HWY_BEFORE_NAMESPACE();
namespace attention::cpu::HWY_NAMESPACE {

HWY_INLINE float FloatOfBits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}
HWY_INLINE uint32_t BitsOfFloat(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}

HWY_INLINE float FromHalf(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000U) << 16;
  const uint32_t rest = half & 0x7FFFU;
  if (rest >= 0x7C00U) {  // infinity, NaN
    return FloatOfBits(sign | 0x7F800000U | (rest & 0x3FFU) << 13);
  }
  if (rest < 0x400U) {  // subnormal: a multiple of 2^-24
    const float magnitude = static_cast<float>(rest) * 0x1p-24F;
    return FloatOfBits(sign | BitsOfFloat(magnitude));
  }
  return FloatOfBits(sign | ((rest << 13) + 0x38000000U));
}

HWY_INLINE float LoadOne(Element type, const unsigned char* from) {
  if (type == Element::kFloat32) {
    float value;
    memcpy(&value, from, sizeof(value));
    return value;
  }
  if (type == Element::kInt8) return static_cast<int8_t>(*from);
  if (type == Element::kFloat8) return FromFloat8(*from);
  uint16_t bits;
  memcpy(&bits, from, sizeof(bits));
  return type == Element::kFloat16
             ? FromHalf(bits)
             : FloatOfBits(static_cast<uint32_t>(bits) << 16);
}

// As many elements of 16 bits as there are floats in a vector.
using Halves = hn::Rebind<uint16_t, F>;

HWY_INLINE VF WidenHalves(hn::VFromD<Halves> halves) {
  const F d;
#if ATTENTION_HARDWARE_FP16
  const hn::Rebind<hwy::float16_t, F> d16;
  return hn::PromoteTo(d, hn::BitCast(d16, halves));
#else
  HWY_ALIGN uint16_t from[hn::MaxLanes(F())];
  HWY_ALIGN float widened[hn::MaxLanes(F())];
  hn::Store(halves, Halves(), from);
  for (size_t i = 0; i < hn::Lanes(d); ++i) widened[i] = FromHalf(from[i]);
  return hn::Load(d, widened);
#endif
}

HWY_INLINE VF WidenHalf(const uint16_t* from) {
  return WidenHalves(hn::LoadU(Halves(), from));
}

HWY_INLINE VF WidenBrains(hn::VFromD<Halves> brains) {
  const hn::RebindToUnsigned<F> du;
  return hn::BitCast(F(), hn::ShiftLeft<16>(hn::PromoteTo(du, brains)));
}

HWY_INLINE VF WidenBrain(const uint16_t* from) {
  return WidenBrains(hn::LoadU(Halves(), from));
}

HWY_INLINE bool IsAligned(const void* pointer, size_t bytes) {
  return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
}

// The first `count` floats, at most a vector of them; zeros after them.
HWY_INLINE VF LoadFirst(const float* from, int64_t count) {
  const F d;
#if HWY_MEM_OPS_MIGHT_FAULT
  HWY_ALIGN float piece[hn::MaxLanes(F())] = {};
  memcpy(piece, from, static_cast<size_t>(count) * sizeof(float));
  return hn::Load(d, piece);
#else
  return hn::MaskedLoad(hn::FirstN(d, static_cast<size_t>(count)), d, from);
#endif
}

// One row of floats side by side, and zeros up to a multiple of the lanes.
HWY_INLINE void CopyPadded(const float* from, int64_t width, float* to,
                           int64_t padded_width) {
  const F d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= width; i += lanes) {
    hn::StoreU(hn::LoadU(d, from + i), d, to + i);
  }
  for (; i < padded_width; i += lanes) {
    const int64_t left = HWY_MAX(int64_t{0}, width - i);
    hn::StoreU(LoadFirst(from + i, left), d, to + i);
  }
}

// The first `count` floats of a vector, at most all of them.
HWY_INLINE void StoreFirst(VF value, int64_t count, float* to) {
  const F d;
  if (count == static_cast<int64_t>(hn::Lanes(d))) {
    hn::StoreU(value, d, to);
    return;
  }
#if HWY_MEM_OPS_MIGHT_FAULT
  HWY_ALIGN float piece[hn::MaxLanes(F())];
  hn::Store(value, d, piece);
  memcpy(to, piece, static_cast<size_t>(count) * sizeof(float));
#else
  hn::BlendedStore(value, hn::FirstN(d, static_cast<size_t>(count)), d, to);
#endif
}

HWY_INLINE VF WidenVector(Element type, const uint16_t* from) {
  return type == Element::kFloat16 ? WidenHalf(from) : WidenBrain(from);
}

// A vector of elements side by side, at an address that suits their type. Those
// with a scale are not multiplied by it.
template <Element kType>
HWY_INLINE VF LoadWide(const unsigned char* row, int64_t index) {
  if constexpr (kType == Element::kFloat32) {
    return hn::LoadU(F(), reinterpret_cast<const float*>(row) + index);
  } else if constexpr (kType == Element::kFloat16) {
    return WidenHalf(reinterpret_cast<const uint16_t*>(row) + index);
  } else if constexpr (kType == Element::kBFloat16) {
    return WidenBrain(reinterpret_cast<const uint16_t*>(row) + index);
  } else if constexpr (kType == Element::kInt8) {
    return WidenInt8(reinterpret_cast<const int8_t*>(row) + index);
  } else {
    return WidenFloat8(row + index);
  }
}

// One row of elements narrower than FP32 that lie side by side, each at an
// address that suits it. `scale` is 1 for types that have none.
template <Element kType>
HWY_INLINE void WidenDenseOf(const unsigned char* from, int64_t width,
                             float* to, float scale) {
  const F d;
  constexpr auto kLanes = static_cast<int64_t>(hn::MaxLanes(F()));
  constexpr int64_t kSize = SizeOf(kType);
  const auto widen = [scale](const unsigned char* row, int64_t index) HWY_ATTR {
    const VF wide = LoadWide<kType>(row, index);
    return HasScale<kType>() ? hn::Mul(wide, hn::Set(F(), scale)) : wide;
  };
  int64_t i = 0;
  for (; i + kLanes <= width; i += kLanes) {
    hn::StoreU(widen(from, i), d, to + i);
  }
  if (i == width) return;
  HWY_ALIGN unsigned char piece[kLanes * kSize] = {};
  memcpy(piece, from + i * kSize, static_cast<size_t>((width - i) * kSize));
  StoreFirst(widen(piece, 0), width - i, to + i);
}

// One row whose elements lie side by side, each at an address that suits it.
HWY_INLINE void WidenDense(Element type, const unsigned char* from,
                           int64_t width, float* to, float scale = 1.0F) {
  switch (type) {
    case Element::kFloat32:
      memcpy(to, from, static_cast<size_t>(width) * sizeof(float));
      return;
    case Element::kFloat16:
      WidenDenseOf<Element::kFloat16>(from, width, to, scale);
      return;
    case Element::kBFloat16:
      WidenDenseOf<Element::kBFloat16>(from, width, to, scale);
      return;
    case Element::kInt8:
      WidenDenseOf<Element::kInt8>(from, width, to, scale);
      return;
    case Element::kFloat8:
      WidenDenseOf<Element::kFloat8>(from, width, to, scale);
      return;
  }
}

inline void WidenRows(const RowSource& from, int64_t rows, int64_t width,
                      float* to, int64_t to_stride, int64_t padded_width) {
  const int64_t size = SizeOf(from.type);
  const bool dense = from.column_stride == size || width == 1;
  const bool whole = padded_width % static_cast<int64_t>(hn::Lanes(F())) == 0;
  for (int64_t r = 0; r < rows; ++r) {
    const unsigned char* row = from.data + r * from.row_stride;
    float* target = to + r * to_stride;
    if (dense && size == 4 && whole && IsAligned(row, 4)) {
      CopyPadded(reinterpret_cast<const float*>(row), width, target,
                 padded_width);
      continue;
    }
    const float scale = ScaleOf(from, r);
    if (dense && (size == 4 || IsAligned(row, size))) {
      WidenDense(from.type, row, width, target, scale);
    } else {
      for (int64_t i = 0; i < width; ++i) {
        target[i] = LoadOne(from.type, row + i * from.column_stride);
        if (from.scales != nullptr) target[i] *= scale;
      }
    }
    for (int64_t i = width; i < padded_width; ++i) target[i] = 0.0F;
  }
}

// The first `count` of a vector, less than all; zeros after them.
template <Element kType>
HWY_INLINE VF LoadPart(const unsigned char* row, int64_t index, int64_t count) {
  if constexpr (kType == Element::kFloat32) {
    return LoadFirst(reinterpret_cast<const float*>(row) + index, count);
  } else if constexpr (HasScale<kType>()) {
    HWY_ALIGN unsigned char piece[hn::MaxLanes(F())] = {};
    memcpy(piece, row + index, static_cast<size_t>(count));
    return LoadWide<kType>(piece, 0);
  } else {
    const auto* const from = reinterpret_cast<const uint16_t*>(row) + index;
    HWY_ALIGN uint16_t piece[hn::MaxLanes(F())] = {};
#if HWY_MEM_OPS_MIGHT_FAULT
    memcpy(piece, from, static_cast<size_t>(count) * 2);
#else
    const hn::Rebind<uint16_t, F> d16;
    hn::Store(
        hn::MaskedLoad(hn::FirstN(d16, static_cast<size_t>(count)), d16, from),
        d16, piece);
#endif
    return WidenVector(kType, piece);
  }
}

}  // namespace attention::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
// NOLINTEND(misc-definitions-in-headers)

#endif  // include guard
