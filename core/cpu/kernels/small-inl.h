// Problems of a few keys, whole: what it takes to cut a problem into tiles
// would cost more than such a problem. Included once per instruction set.
#if defined(ATTENTION_CORE_CPU_KERNELS_SMALL_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef ATTENTION_CORE_CPU_KERNELS_SMALL_INL_H_
#undef ATTENTION_CORE_CPU_KERNELS_SMALL_INL_H_
#else
#define ATTENTION_CORE_CPU_KERNELS_SMALL_INL_H_
#endif

#include "core/cpu/kernels/arguments.h"
#include "core/cpu/kernels/convert-inl.h"
#include "core/cpu/kernels/epilogue-inl.h"
#include "core/cpu/kernels/math-inl.h"
#include "core/cpu/kernels/pack-inl.h"
#include "core/cpu/kernels/softmax-inl.h"
#include "hwy/highway.h"

// Compiled once per instruction set, into a namespace of its own each time.
// NOLINTBEGIN(misc-definitions-in-headers)
HWY_BEFORE_NAMESPACE();
namespace attention::cpu::HWY_NAMESPACE {

// Vectors that hold a row's scores.
inline constexpr int kSmallVectors =
    static_cast<int>(kSmallKeys / static_cast<int64_t>(hn::MaxLanes(F())));
// Rows whose scores are summed at once: one alone waits for each sum.
inline constexpr int kSmallRows = kSmallVectors >= 4 ? 1 : 4 / kSmallVectors;

// Scores of some rows, in powers of 2, -inf beyond their keys.
template <int kRows>
HWY_INLINE void ScoreSmallRows(const SmallArgs& args, const float* query,
                               const float* keys,
                               VF (&scores)[kRows][kSmallVectors]) {
  const F d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  ATTENTION_UNROLL
  for (int r = 0; r < kRows; ++r) {
    ATTENTION_UNROLL
    for (int v = 0; v < kSmallVectors; ++v) scores[r][v] = hn::Zero(d);
  }
  for (int64_t i = 0; i < args.width; ++i) {
    ATTENTION_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const VF q = hn::Set(d, query[r * args.query_stride + i] * args.factor);
      ATTENTION_UNROLL
      for (int v = 0; v < kSmallVectors; ++v) {
        const VF key = hn::Load(d, keys + i * kSmallKeys + v * lanes);
        scores[r][v] = hn::MulAdd(q, key, scores[r][v]);
      }
    }
  }
  const VF end = hn::Set(d, static_cast<float>(args.keys));
  ATTENTION_UNROLL
  for (int v = 0; v < kSmallVectors; ++v) {
    const VF key = hn::Iota(d, static_cast<float>(v * lanes));
    ATTENTION_UNROLL
    for (int r = 0; r < kRows; ++r) {
      scores[r][v] =
          hn::IfThenElse(hn::Lt(key, end), scores[r][v], MinusInfinity());
    }
  }
}

// Combines a row's vectors into one.
template <class Op>
HWY_INLINE VF Fold(const VF* row, const Op& op) {
  VF all = row[0];
  ATTENTION_UNROLL
  for (int v = 1; v < kSmallVectors; ++v) all = op(all, row[v]);
  return all;
}

// A row's weights from its scores; returns their sum. All keys are at hand and
// in registers: no state is carried on, as softmax-inl.h has it.
HWY_INLINE float SoftmaxOfSmallRow(const VF* scores, float* weights) {
  const F d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const VF top = hn::MaxOfLanes(d, Fold(scores, MaxOp()));
  VF exponentials[kSmallVectors];
  ATTENTION_UNROLL
  for (int v = 0; v < kSmallVectors; ++v) {
    exponentials[v] = Exp2(hn::Sub(scores[v], top));
    hn::Store(exponentials[v], d, weights + v * lanes);
  }
  return hn::GetLane(hn::SumOfLanes(d, Fold(exponentials, AddOp())));
}

// The weighted sum of the values, normalised and stored; false where it is not
// finite.
HWY_INLINE bool StoreSmallRow(const SmallArgs& args, const float* weights,
                              float sum, float* to) {
  const F d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const VF inverse = hn::Set(d, 1.0F / sum);
  const VF largest = hn::Set(d, 3.402823466e38F);
  auto finite = hn::Eq(inverse, inverse);
  for (int64_t c = 0; c < args.value_width; c += lanes) {
    const int64_t count = HWY_MIN(lanes, args.value_width - c);
    const float* value = args.value + c;
    VF total = hn::Zero(d);
    for (int64_t j = 0; j < args.keys; ++j) {
      const VF row =
          count == lanes ? hn::LoadU(d, value) : LoadFirst(value, count);
      total = hn::MulAdd(hn::Set(d, weights[j]), row, total);
      value += args.value_stride;
    }
    total = hn::Mul(total, inverse);
    finite = hn::And(finite, hn::Le(hn::Abs(total), largest));
    StoreFirst(total, count, to + c);
  }
  return hn::AllTrue(d, finite);
}

// Some rows, from `first` on; false where a result is not finite.
template <int kRows>
HWY_INLINE bool AttendSmallRows(const SmallArgs& args, int64_t first,
                                const float* keys) {
  HWY_ALIGN float weights[kSmallKeys];
  VF scores[kRows][kSmallVectors];
  ScoreSmallRows<kRows>(args, args.query + first * args.query_stride, keys,
                        scores);
  for (int r = 0; r < kRows; ++r) {
    const float sum = SoftmaxOfSmallRow(scores[r], weights);
    if (!StoreSmallRow(args, weights, sum,
                       args.output + (first + r) * args.output_stride)) {
      return false;
    }
  }
  return true;
}

inline bool AttendSmall(const SmallArgs& args) {
  HWY_ALIGN float keys[kSmallWidth * kSmallKeys];
  PackPanelsOf(kSmallKeys, args.key, args.key_stride, args.keys, args.width,
               keys);
  int64_t r = 0;
  for (; r + kSmallRows <= args.rows; r += kSmallRows) {
    if (!AttendSmallRows<kSmallRows>(args, r, keys)) return false;
  }
  for (; r < args.rows; ++r) {
    if (!AttendSmallRows<1>(args, r, keys)) return false;
  }
  return true;
}

}  // namespace attention::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
// NOLINTEND(misc-definitions-in-headers)

#endif  // include guard
