// Rows of FP32 into results: multiplied, rounded to their type, stored at any
// address. Included once per instruction set.
#if defined(ATTENTION_CORE_CPU_KERNELS_FINISH_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef ATTENTION_CORE_CPU_KERNELS_FINISH_INL_H_
#undef ATTENTION_CORE_CPU_KERNELS_FINISH_INL_H_
#else
#define ATTENTION_CORE_CPU_KERNELS_FINISH_INL_H_
#endif

#include <cstring>

#include "core/cpu/kernels/arguments.h"
#include "core/cpu/kernels/convert-inl.h"
#include "core/cpu/kernels/math-inl.h"
#include "hwy/highway.h"

// Compiled once per instruction set, into a namespace of its own each time.
// NOLINTBEGIN(misc-definitions-in-headers)
HWY_BEFORE_NAMESPACE();
namespace attention::cpu::HWY_NAMESPACE {

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

#if ATTENTION_HARDWARE_FP16
// A vector of FP16, to nearest, ties to even.
HWY_INLINE void StoreHalf(VF value, unsigned char* to) {
  const hn::Rebind<hwy::float16_t, F> narrow;
  const hn::Repartition<uint8_t, decltype(narrow)> bytes;
  hn::StoreU(hn::BitCast(bytes, hn::DemoteTo(narrow, value)), bytes, to);
}
#endif

// A factor in two steps where alone it would be subnormal or 0: what it is
// multiplied by may be large.
struct Factor {
  explicit Factor(double factor)
      : after(factor < 0x1p-64 ? 0x1p-64F : 1.0F),
        first(static_cast<float>(factor / after)) {}

  float after;
  float first;
};

inline void FinishRows(const FinishArgs& args) {
  const F d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t size = SizeOf(args.type);
  for (int64_t r = 0; r < args.rows; ++r) {
    unsigned char* to = args.to[r];
    if (to == nullptr) continue;
    const float* row = args.output + r * args.output_stride;
    const double sum = args.sum[r];
    const Factor inverse(sum == 0.0 ? 0.0 : 1.0 / sum);
    const VF first = hn::Set(d, inverse.first);
    const VF after = hn::Set(d, inverse.after);
    const auto finish = [=](int64_t i) HWY_ATTR {
      return hn::Mul(hn::Mul(hn::Load(d, row + i), first), after);
    };
    int64_t i = 0;
    if (args.type == Element::kFloat32 && IsAligned(to, 4)) {
      for (; i < args.width; i += lanes) {
        StoreFirst(finish(i), HWY_MIN(lanes, args.width - i),
                   reinterpret_cast<float*>(to) + i);
      }
    }
    if (args.type == Element::kBFloat16) {
      for (; i + lanes <= args.width; i += lanes) {
        StoreBrain(finish(i), to + i * size);
      }
    }
#if ATTENTION_HARDWARE_FP16
    if (args.type == Element::kFloat16) {
      for (; i + lanes <= args.width; i += lanes) {
        StoreHalf(finish(i), to + i * size);
      }
    }
#endif
    for (; i < args.width; i += lanes) {
      StorePiece(args.type, finish(i), HWY_MIN(lanes, args.width - i),
                 to + i * size);
    }
  }
}

// Streams, for `to` is not in the caches.
inline void ScaleRow(const float* from, int64_t count, double factor,
                     float* to) {
  const F d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const Factor parts(factor);
  const VF scale = hn::Set(d, parts.first);
  const VF scale_after = hn::Set(d, parts.after);
  const bool stream = IsAligned(to, sizeof(float) * hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const VF value =
        hn::Mul(hn::Mul(hn::LoadU(d, from + i), scale), scale_after);
    if (stream) {
      hn::Stream(value, d, to + i);
    } else {
      hn::StoreU(value, d, to + i);
    }
  }
  for (; i < count; ++i) {
    const float value = from[i] * parts.first * parts.after;
    memcpy(to + i, &value, sizeof(value));
  }
}

}  // namespace attention::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
// NOLINTEND(misc-definitions-in-headers)

#endif  // include guard
