// Rows of any element type, layout and alignment into rows of FP32, and back.
// Included once per instruction set.
#if defined(ATTENTION_CORE_CPU_CONVERT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTENTION_CORE_CPU_CONVERT_INL_H_
#undef ATTENTION_CORE_CPU_CONVERT_INL_H_
#else
#define ATTENTION_CORE_CPU_CONVERT_INL_H_
#endif

#include <cstring>

#include "core/cpu/math-inl.h"
#include "hwy/highway.h"

// Compiled once per instruction set, into a namespace of its own each time.
// NOLINTBEGIN(misc-definitions-in-headers)
HWY_BEFORE_NAMESPACE();
namespace attention::cpu::HWY_NAMESPACE {

// Where the processor itself converts FP16.
#undef ATTENTION_HARDWARE_FP16
#if (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2) || HWY_ARCH_ARM
#define ATTENTION_HARDWARE_FP16 1
#else
#define ATTENTION_HARDWARE_FP16 0
#endif

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

// To nearest, ties to even.
HWY_INLINE uint16_t ToHalf(float value) {
  const uint32_t bits = BitsOfFloat(value);
  const uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000U);
  const uint32_t rest = bits & 0x7FFFFFFFU;
  if (rest > 0x7F800000U) return sign | 0x7E00U;
  if (rest >= 0x477FF000U) return sign | 0x7C00U;  // 65520 rounds to infinity
  if (rest < 0x38800000U) {
    // Below 2^-14: adding 0.5 leaves the multiple of 2^-24 in the low bits.
    return sign | static_cast<uint16_t>(BitsOfFloat(FloatOfBits(rest) + 0.5F) -
                                        0x3F000000U);
  }
  const uint32_t odd = rest >> 13 & 1U;
  return sign |
         static_cast<uint16_t>((rest - 0x38000000U + 0xFFFU + odd) >> 13);
}

HWY_INLINE uint16_t ToBrain(float value) {
  const uint32_t bits = BitsOfFloat(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) {
    return static_cast<uint16_t>(bits >> 16 | 0x40U);
  }
  return static_cast<uint16_t>((bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16);
}

HWY_INLINE float LoadOne(Element type, const unsigned char* from) {
  if (type == Element::kFloat32) {
    float value;
    memcpy(&value, from, sizeof(value));
    return value;
  }
  uint16_t bits;
  memcpy(&bits, from, sizeof(bits));
  return type == Element::kFloat16
             ? FromHalf(bits)
             : FloatOfBits(static_cast<uint32_t>(bits) << 16);
}

HWY_INLINE VF WidenHalf(const uint16_t* from) {
  const F d;
#if ATTENTION_HARDWARE_FP16
  const hn::Rebind<hwy::float16_t, F> d16;
  const hn::Rebind<uint16_t, F> du16;
  return hn::PromoteTo(d, hn::BitCast(d16, hn::LoadU(du16, from)));
#else
  HWY_ALIGN float widened[hn::MaxLanes(F())];
  for (size_t i = 0; i < hn::Lanes(d); ++i) widened[i] = FromHalf(from[i]);
  return hn::Load(d, widened);
#endif
}

HWY_INLINE VF WidenBrain(const uint16_t* from) {
  const F d;
  const hn::Rebind<uint16_t, F> du16;
  const hn::RebindToUnsigned<F> du;
  return hn::BitCast(
      d, hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(du16, from))));
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

// One row whose elements lie side by side, each at an address that suits it.
HWY_INLINE void WidenDense(Element type, const unsigned char* from,
                           int64_t width, float* to) {
  const F d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  if (type == Element::kFloat32) {
    memcpy(to, from, static_cast<size_t>(width) * sizeof(float));
    return;
  }
  const auto* elements = reinterpret_cast<const uint16_t*>(from);
  if (type == Element::kFloat16) {
    for (; i + lanes <= width; i += lanes) {
      hn::StoreU(WidenHalf(elements + i), d, to + i);
    }
  } else {
    for (; i + lanes <= width; i += lanes) {
      hn::StoreU(WidenBrain(elements + i), d, to + i);
    }
  }
  for (; i < width; ++i) to[i] = LoadOne(type, from + i * 2);
}

void WidenRows(const RowSource& from, int64_t rows, int64_t width, float* to,
               int64_t to_stride, int64_t padded_width) {
  const int64_t size = from.type == Element::kFloat32 ? 4 : 2;
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
    if (dense && (size == 4 || IsAligned(row, 2))) {
      WidenDense(from.type, row, width, target);
    } else {
      for (int64_t i = 0; i < width; ++i) {
        target[i] = LoadOne(from.type, row + i * from.column_stride);
      }
    }
    for (int64_t i = width; i < padded_width; ++i) target[i] = 0.0F;
  }
}

void ScaleRow(const float* from, int64_t count, float factor, float* to) {
  const F d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const VF scale = hn::Set(d, factor);
  const bool stream = IsAligned(to, sizeof(float) * hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const VF value = hn::Mul(hn::LoadU(d, from + i), scale);
    if (stream) {
      hn::Stream(value, d, to + i);
    } else {
      hn::StoreU(value, d, to + i);
    }
  }
  for (; i < count; ++i) {
    const float value = from[i] * factor;
    memcpy(to + i, &value, sizeof(value));
  }
}

// Up to one vector of results, at an address that may not suit their type.
HWY_INLINE void StorePiece(Element type, VF value, int64_t count,
                           unsigned char* to) {
  HWY_ALIGN float piece[hn::MaxLanes(F())];
  hn::Store(value, F(), piece);
  if (type == Element::kFloat32) {
    for (int64_t n = 0; n < count; ++n) memcpy(to + n * 4, piece + n, 4);
    return;
  }
  uint16_t narrow[hn::MaxLanes(F())];
  for (int64_t n = 0; n < count; ++n) {
    narrow[n] =
        type == Element::kFloat16 ? ToHalf(piece[n]) : ToBrain(piece[n]);
  }
  memcpy(to, narrow, static_cast<size_t>(count) * 2);
}

// The first `count` floats of a vector, at most all of them.
HWY_INLINE void StoreFirst(VF value, int64_t count, float* to) {
  const F d;
  if (count == static_cast<int64_t>(hn::Lanes(d))) {
    hn::StoreU(value, d, to);
    return;
  }
#if HWY_MEM_OPS_MIGHT_FAULT
  StorePiece(Element::kFloat32, value, count,
             reinterpret_cast<unsigned char*>(to));
#else
  hn::BlendedStore(value, hn::FirstN(d, static_cast<size_t>(count)), d, to);
#endif
}

// A vector of BF16, rounded as ToBrain() does.
HWY_INLINE void StoreBrain(VF value, unsigned char* to) {
  const hn::RebindToUnsigned<F> du;
  const hn::RebindToSigned<F> di;
  const hn::Rebind<uint16_t, F> narrow;
  const auto bits = hn::BitCast(du, value);
  const auto high = hn::ShiftRight<16>(bits);
  const auto odd = hn::And(high, hn::Set(du, 1));
  const auto rounded = hn::ShiftRight<16>(
      hn::Add(bits, hn::Add(odd, hn::Set(du, uint32_t{0x7FFF}))));
  const auto nan = hn::Or(high, hn::Set(du, uint32_t{0x40}));
  const auto is_nan = hn::RebindMask(du, hn::IsNaN(value));
  const auto result = hn::DemoteTo(
      narrow, hn::BitCast(di, hn::IfThenElse(is_nan, nan, rounded)));
  const hn::Repartition<uint8_t, decltype(narrow)> bytes;
  hn::StoreU(hn::BitCast(bytes, result), bytes, to);
}

// A row's results on their way out, and what is to be known of them.
struct FinishedRow {
  VF inverse;  // of the sum of weights
  decltype(hn::Eq(VF(), VF())) all_finite;
  VF least;  // magnitude

  HWY_INLINE VF Finish(const float* from) {
    const F d;
    const VF value = hn::Mul(hn::Load(d, from), inverse);
    const VF magnitude = hn::Abs(value);
    all_finite =
        hn::And(all_finite, hn::Le(magnitude, hn::Set(d, 3.402823466e38F)));
    least = hn::Min(least, magnitude);
    return value;
  }
};

void FinishRows(const FinishArgs& args) {
  const F d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t size = args.type == Element::kFloat32 ? 4 : 2;
  for (int64_t r = 0; r < args.rows; ++r) {
    const float* row = args.output + r * args.output_stride;
    const double sum = args.sum[r];
    FinishedRow finished;
    finished.inverse =
        hn::Set(d, sum == 0.0 ? 0.0F : static_cast<float>(1.0 / sum));
    finished.all_finite = hn::Eq(finished.inverse, finished.inverse);
    finished.least = hn::Set(d, kTinyResult);
    unsigned char* to = args.to[r];
    int64_t i = 0;
    if (args.type == Element::kFloat32 && IsAligned(to, 4)) {
      for (; i < args.width; i += lanes) {
        StoreFirst(finished.Finish(row + i), HWY_MIN(lanes, args.width - i),
                   reinterpret_cast<float*>(to) + i);
      }
    }
    if (args.type == Element::kBFloat16) {
      for (; i + lanes <= args.width; i += lanes) {
        StoreBrain(finished.Finish(row + i), to + i * size);
      }
    }
    for (; i < args.width; i += lanes) {
      StorePiece(args.type, finished.Finish(row + i),
                 HWY_MIN(lanes, args.width - i), to + i * size);
    }
    args.not_finite[r] = hn::AllTrue(d, finished.all_finite) ? 0 : 1;
    args.tiny[r] =
        hn::AllFalse(d, hn::Lt(finished.least, hn::Set(d, kTinyResult))) ? 0
                                                                         : 1;
  }
}

}  // namespace attention::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
// NOLINTEND(misc-definitions-in-headers)

#endif  // include guard
