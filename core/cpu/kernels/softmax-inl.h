// The online softmax of a micro-tile: scores become weights, and the rows'
// states (SoftmaxState of core/softmax_state.h, in powers of 2) take them in.
// Included once per instruction set.
#if defined(ATTENTION_CORE_CPU_KERNELS_SOFTMAX_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef ATTENTION_CORE_CPU_KERNELS_SOFTMAX_INL_H_
#undef ATTENTION_CORE_CPU_KERNELS_SOFTMAX_INL_H_
#else
#define ATTENTION_CORE_CPU_KERNELS_SOFTMAX_INL_H_
#endif

#include "core/cpu/kernels/epilogue-inl.h"
#include "core/cpu/kernels/math-inl.h"
#include "core/cpu/kernels/pack-inl.h"
#include "hwy/highway.h"

// Compiled once per instruction set, into a namespace of its own each time.
// NOLINTBEGIN(misc-definitions-in-headers)
HWY_BEFORE_NAMESPACE();
namespace attention::cpu::HWY_NAMESPACE {

struct MaxOp {
  HWY_INLINE VF operator()(VF a, VF b) const { return hn::Max(a, b); }
};
struct AddOp {
  HWY_INLINE VF operator()(VF a, VF b) const { return hn::Add(a, b); }
};

template <class D>
HWY_INLINE hn::Vec<hn::CappedTag<float, 4>> LowestBlock(D d, hn::Vec<D> v) {
  if constexpr (hn::MaxLanes(D()) <= 4) {
    static_cast<void>(d);
    return v;
  } else {
    const hn::Half<D> half;
    return LowestBlock(half, hn::LowerHalf(half, v));
  }
}

// Combines the lanes of each of kRows vectors: to[r] belongs to vectors[r].
// Four rows share their shuffles.
template <int kRows, class Op>
HWY_INLINE void ReduceLanes(const VF* vectors, const Op& op, float* to) {
  const F d;
  constexpr size_t kLanes = hn::MaxLanes(F());
  HWY_ALIGN float block[kLanes];
  for (int r = 0; r < kRows; r += 4) {
    const int last = kRows - 1;
    VF v0 = vectors[r];
    VF v1 = vectors[HWY_MIN(r + 1, last)];
    VF v2 = vectors[HWY_MIN(r + 2, last)];
    VF v3 = vectors[HWY_MIN(r + 3, last)];
    TransposeBlocks(v0, v1, v2, v3);
    VF v = op(op(v0, v1), op(v2, v3));
    if constexpr (kLanes >= 8) v = op(v, hn::SwapAdjacentBlocks(v));
    if constexpr (kLanes >= 16) v = op(v, hn::ReverseBlocks(d, v));
    if (r + 4 <= kRows) {
      hn::StoreU(LowestBlock(d, v), hn::CappedTag<float, 4>(), to + r);
      continue;
    }
    hn::Store(v, d, block);
    for (int n = 0; n < 4 && r + n < kRows; ++n) to[r + n] = block[n];
  }
}

HWY_INLINE VF MaxOfRow(const Columns& columns, const float* scores) {
  const F d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  VF max0 = MinusInfinity();
  VF max1 = max0;
  int64_t c = columns.first;
  for (; c + 2 * lanes <= columns.last; c += 2 * lanes) {
    max0 = hn::Max(max0, hn::LoadU(d, scores + c));
    max1 = hn::Max(max1, hn::LoadU(d, scores + c + lanes));
  }
  if (c < columns.last) max0 = hn::Max(max0, hn::LoadU(d, scores + c));
  return hn::Max(max0, max1);
}

// weights = 2^(score - max), perhaps in the place of the scores; returns their
// sums, lane by lane. kClamped: scores may pass max by any amount.
template <bool kClamped>
HWY_INLINE VF WeightsOfRow(const Columns& columns, float max,
                           const float* scores, float* weights) {
  const F d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const VF top = hn::Set(d, max);
  VF sum0 = hn::Zero(d);
  VF sum1 = sum0;
  int64_t c = columns.first;
  for (; c + 4 * lanes <= columns.last; c += 4 * lanes) {
    const float* const at = scores + c;
    float* const to = weights + c;
    VF x0 = hn::Sub(hn::LoadU(d, at), top);
    VF x1 = hn::Sub(hn::LoadU(d, at + lanes), top);
    VF x2 = hn::Sub(hn::LoadU(d, at + 2 * lanes), top);
    VF x3 = hn::Sub(hn::LoadU(d, at + 3 * lanes), top);
    if (kClamped) {
      x0 = Clamped(x0);
      x1 = Clamped(x1);
      x2 = Clamped(x2);
      x3 = Clamped(x3);
    }
    Exp2Four(x0, x1, x2, x3);
    hn::StoreU(x0, d, to);
    hn::StoreU(x1, d, to + lanes);
    hn::StoreU(x2, d, to + 2 * lanes);
    hn::StoreU(x3, d, to + 3 * lanes);
    sum0 = hn::Add(sum0, hn::Add(x0, x1));
    sum1 = hn::Add(sum1, hn::Add(x2, x3));
  }
  for (; c < columns.last; c += lanes) {
    const VF x = hn::Sub(hn::LoadU(d, scores + c), top);
    const VF p = Exp2(kClamped ? Clamped(x) : x);
    hn::StoreU(p, d, weights + c);
    sum0 = hn::Add(sum0, p);
  }
  return hn::Add(sum0, sum1);
}

// True where a row of scores that has no maximum holds NaN.
HWY_INLINE bool HoldsNan(const Columns& columns, const float* scores) {
  for (int64_t c = columns.first; c < columns.last; ++c) {
    if (scores[c] != scores[c]) return true;
  }
  return false;
}

// Brings a row's state up to date with scores whose maximum is `largest` (-inf
// where none takes part, or all are NaN): what they are to be subtracted from.
HWY_INLINE float TopOfRow(const TileArgs& args, int64_t row, float largest,
                          const Columns& columns, const float* scores) {
  const float top = HWY_MAX(args.max[row], largest);
  if (top != -__builtin_inff()) return top;
  // No key takes part yet; scores that are NaN do not show in a maximum.
  if (HoldsNan(columns, scores)) args.sum[row] = __builtin_nan("");
  return 0.0F;
}

// Adds the sum of weights relative to `top`; returns what the weighted values
// gathered so far must be multiplied by. SoftmaxState::Merge, in powers of 2.
HWY_INLINE float MergeRow(const TileArgs& args, int64_t row, float top,
                          float sum) {
  float factor = 1.0F;
  if (args.sum[row] != 0.0 || sum != 0.0F) {
    if (top != args.max[row]) {
      factor = hn::GetLane(Exp2(hn::Set(F(), args.max[row] - top)));
      args.max[row] = top;
    }
    args.sum[row] = args.sum[row] * factor + sum;
  }
  return factor;
}

// Weights relative to the rows' new maxima, in the place of the scores.
// factors: what the weighted values gathered so far must be multiplied by.
template <int kRows>
HWY_INLINE void SoftmaxOfRows(const TileArgs& args, int64_t first_row,
                              const Columns& columns, float* factors) {
  VF vectors[kRows];
  float tops[kRows];
  float sums[kRows];
  ATTENTION_UNROLL
  for (int r = 0; r < kRows; ++r) {
    vectors[r] = MaxOfRow(columns, args.scores + r * kScoreStride);
  }
  ReduceLanes<kRows>(vectors, MaxOp(), tops);
  for (int r = 0; r < kRows; ++r) {
    float* const scores = args.scores + r * kScoreStride;
    tops[r] = TopOfRow(args, first_row + r, tops[r], columns, scores);
    vectors[r] = WeightsOfRow<false>(columns, tops[r], scores, scores);
  }
  ReduceLanes<kRows>(vectors, AddOp(), sums);
  for (int r = 0; r < kRows; ++r) {
    factors[r] = MergeRow(args, first_row + r, tops[r], sums[r]);
  }
}

// Of a tile's weights, where they are relative to an earlier maximum.
inline constexpr float kLargestSum = 16384.0F;

// The same for rows that have a maximum already, into args.weights. Weights are
// relative to it where it is not passed by much, which saves the look for the
// tile's own; a row in which it is has its exponentials computed again.
template <int kRows>
HWY_INLINE void SoftmaxOfLaterRows(const TileArgs& args, int64_t first_row,
                                   const Columns& columns, float* factors) {
  const F d;
  VF vectors[kRows];
  float sums[kRows];
  for (int r = 0; r < kRows; ++r) {
    vectors[r] = WeightsOfRow<true>(columns, args.max[first_row + r],
                                    args.scores + r * kScoreStride,
                                    args.weights + r * kScoreStride);
  }
  ReduceLanes<kRows>(vectors, AddOp(), sums);
  for (int r = 0; r < kRows; ++r) {
    const int64_t row = first_row + r;
    factors[r] = 1.0F;
    if (sums[r] <= kLargestSum) {  // false where it is NaN
      args.sum[row] += sums[r];
      continue;
    }
    const float* const scores = args.scores + r * kScoreStride;
    const float largest =
        hn::GetLane(hn::MaxOfLanes(d, MaxOfRow(columns, scores)));
    const float top = TopOfRow(args, row, largest, columns, scores);
    const VF sum = WeightsOfRow<false>(columns, top, scores,
                                       args.weights + r * kScoreStride);
    factors[r] = MergeRow(args, row, top, hn::GetLane(hn::SumOfLanes(d, sum)));
  }
}

// Weights of a micro-tile from its scores, and their place.
template <int kRows>
HWY_INLINE float* WeightsOfRows(const TileArgs& args, int64_t first_row,
                                const Columns& columns, float* factors) {
  for (int r = 0; r < kRows; ++r) {
    if (args.max[first_row + r] == -__builtin_inff()) {
      SoftmaxOfRows<kRows>(args, first_row, columns, factors);
      return args.scores;
    }
  }
  SoftmaxOfLaterRows<kRows>(args, first_row, columns, factors);
  return args.weights;
}

// Multiplies a row by its dropout factors.
HWY_INLINE void DropRow(const TileArgs& args, int64_t row,
                        const Columns& columns, float* p) {
  float* line = args.scores + kDropoutRow * kScoreStride;
  args.dropout(args.dropout_context, row,
               args.dropout_first_key + columns.begin,
               columns.end - columns.begin, line + columns.begin);
  for (int64_t j = columns.begin; j < columns.end; ++j) p[j] *= line[j];
}

}  // namespace attention::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
// NOLINTEND(misc-definitions-in-headers)

#endif  // include guard
