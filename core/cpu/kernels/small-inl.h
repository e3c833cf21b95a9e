// Problems of a few keys, whole: what it takes to cut a problem into tiles
// would cost more than such a problem. Included once per instruction set.
#if defined(ATTENTION_CORE_CPU_KERNELS_SMALL_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef ATTENTION_CORE_CPU_KERNELS_SMALL_INL_H_
#undef ATTENTION_CORE_CPU_KERNELS_SMALL_INL_H_
#else
#define ATTENTION_CORE_CPU_KERNELS_SMALL_INL_H_
#endif

#include "core/cpu/kernels/convert-inl.h"
#include "core/cpu/kernels/math-inl.h"
#include "core/cpu/kernels/softmax-inl.h"
#include "hwy/highway.h"

// Compiled once per instruction set, into a namespace of its own each time.
// NOLINTBEGIN(misc-definitions-in-headers)
HWY_BEFORE_NAMESPACE();
namespace attention::cpu::HWY_NAMESPACE {

// Vectors that hold a row's scores.
inline constexpr int kSmallVectors =
    static_cast<int>(kSmallKeys / static_cast<int64_t>(hn::MaxLanes(F())));

// [width][kSmallKeys], zeros after the last key.
HWY_INLINE void TransposeKeys(const SmallArgs& args, float* to) {
  const F d;
  for (int64_t i = 0; i < args.width * kSmallKeys;
       i += static_cast<int64_t>(hn::Lanes(d))) {
    hn::Store(hn::Zero(d), d, to + i);
  }
  for (int64_t j = 0; j < args.keys; ++j) {
    const float* from = args.key + j * args.key_stride;
    for (int64_t i = 0; i < args.width; ++i) to[i * kSmallKeys + j] = from[i];
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

HWY_INLINE float MaxOf(const VF* row) {
  return hn::GetLane(hn::MaxOfLanes(F(), Fold(row, MaxOp())));
}
HWY_INLINE float SumOf(const VF* row) {
  return hn::GetLane(hn::SumOfLanes(F(), Fold(row, AddOp())));
}

// Scores of a row in units of the softmax, -inf beyond its keys.
HWY_INLINE void ScoreSmallRow(const SmallArgs& args, const float* query,
                              const float* keys, VF* scores) {
  const F d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  ATTENTION_UNROLL
  for (int v = 0; v < kSmallVectors; ++v) scores[v] = hn::Zero(d);
  for (int64_t i = 0; i < args.width; ++i) {
    const VF q = hn::Set(d, query[i] * args.factor);
    ATTENTION_UNROLL
    for (int v = 0; v < kSmallVectors; ++v) {
      const VF key = hn::Load(d, keys + i * kSmallKeys + v * lanes);
      scores[v] = hn::MulAdd(q, key, scores[v]);
    }
  }
  const VF keys_end = hn::Set(d, static_cast<float>(args.keys));
  ATTENTION_UNROLL
  for (int v = 0; v < kSmallVectors; ++v) {
    const VF index = hn::Iota(d, static_cast<float>(v * lanes));
    scores[v] =
        hn::IfThenElse(hn::Lt(index, keys_end), scores[v], MinusInfinity());
  }
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

bool AttendSmall(const SmallArgs& args) {
  const F d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  HWY_ALIGN float keys[kSmallWidth * kSmallKeys];
  HWY_ALIGN float weights[kSmallKeys];
  TransposeKeys(args, keys);
  for (int64_t r = 0; r < args.rows; ++r) {
    VF scores[kSmallVectors];
    ScoreSmallRow(args, args.query + r * args.query_stride, keys, scores);
    const float max = MaxOf(scores);
    ATTENTION_UNROLL
    for (int v = 0; v < kSmallVectors; ++v) {
      scores[v] = Exp2(hn::Sub(scores[v], hn::Set(d, max)));
      hn::Store(scores[v], d, weights + v * lanes);
    }
    const float sum = SumOf(scores);
    if (!StoreSmallRow(args, weights, sum,
                       args.output + r * args.value_width)) {
      return false;
    }
  }
  return true;
}

}  // namespace attention::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
// NOLINTEND(misc-definitions-in-headers)

#endif  // include guard
