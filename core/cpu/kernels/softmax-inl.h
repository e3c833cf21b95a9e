// The online softmax of a micro-tile, whatever computed its scores and whatever
// multiplies its weights: scores become weights, and the rows' states
// (core/softmax_state.h) take them in. Included once per instruction set.
#if defined(ATTENTION_CORE_CPU_KERNELS_SOFTMAX_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef ATTENTION_CORE_CPU_KERNELS_SOFTMAX_INL_H_
#undef ATTENTION_CORE_CPU_KERNELS_SOFTMAX_INL_H_
#else
#define ATTENTION_CORE_CPU_KERNELS_SOFTMAX_INL_H_
#endif

#include "core/cpu/kernels/bf16/products.h"
#include "core/cpu/kernels/epilogue-inl.h"
#include "core/cpu/kernels/math-inl.h"
#include "core/cpu/kernels/pack-inl.h"
#include "core/softmax_state.h"
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

// Combines the lanes of each of four vectors, which share their shuffles: to[n]
// belongs to vectors[n].
template <class Op>
HWY_INLINE void ReduceLanes(const VF* vectors, const Op& op, float* to) {
  const F d;
  constexpr size_t kLanes = hn::MaxLanes(F());
  VF v0 = vectors[0];
  VF v1 = vectors[1];
  VF v2 = vectors[2];
  VF v3 = vectors[3];
  TransposeBlocks(v0, v1, v2, v3);
  VF v = op(op(v0, v1), op(v2, v3));
  if constexpr (kLanes >= 8) v = op(v, hn::SwapAdjacentBlocks(v));
  if constexpr (kLanes >= 16) v = op(v, hn::ReverseBlocks(d, v));
  hn::StoreU(LowestBlock(d, v), hn::CappedTag<float, 4>(), to);
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

// Rounds to BF16 and pairs two vectors of weights. A tie is rounded up.
HWY_INLINE VF PairOf(VF low, VF high) {
  const hn::RebindToUnsigned<F> d;
  const auto half = hn::Set(d, 0x8000U);
  const auto a = hn::Add(hn::BitCast(d, low), half);
  const auto b = hn::Add(hn::BitCast(d, high), half);
  return hn::BitCast(
      F(), hn::Or(hn::ShiftRight<16>(a), hn::And(b, hn::Set(d, 0xFFFF0000U))));
}

// Where a row's weights go, and in which order they are computed: two vectors
// at a time, kSecond columns apart. As floats, for PV in FP32:
struct FloatWeights {
  static constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(F()));
  static constexpr int64_t kSecond = kLanes;
  static constexpr int64_t kNextTwo = 2 * kLanes;
  static constexpr bool kWholeTwos = false;  // a single vector may be left

  float* floats;  // of the tile's first key

  static HWY_INLINE int64_t AfterTwo(int64_t c) { return c + 2 * kLanes; }
  HWY_INLINE void Store(int64_t c, VF first, VF second) const {
    hn::StoreU(first, F(), floats + c);
    hn::StoreU(second, F(), floats + c + kSecond);
  }
};

// As pairs of BF16, key i beside key 16 + i of 32, for PV in BF16; columns
// begin and end with such panels. What the rounding to BF16 has lost is a
// second term where PV multiplies two. Where values have scales, the weights
// take them. And as floats, without scales, where somebody asks for them.
struct PairedWeights {
  static constexpr int64_t kLanes = FloatWeights::kLanes;
  static constexpr int64_t kSecond = kBf16Depth;
  static constexpr int64_t kNextTwo =
      kLanes == kBf16Depth ? kBf16Panel : kLanes;
  static constexpr bool kWholeTwos = true;

  float* pairs;  // of the first column
  bool two_terms;
  int64_t first;
  const float* scales;  // of the tile's first key; null for none
  float* floats;        // likewise
  float unit = 1.0F;    // by which scales are multiplied

  static HWY_INLINE int64_t AfterTwo(int64_t c) {
    const int64_t next = c + kLanes;  // in the panel's first half
    return next % kBf16Panel < kBf16Depth ? next : next + kBf16Depth;
  }
  HWY_INLINE void Store(int64_t c, VF low, VF high) const {
    const auto key = static_cast<uint64_t>(c - first);  // shifts, no divisions
    const uint64_t panel = key / kBf16Panel * kBf16Depth;
    float* to = pairs + panel;
    if constexpr (kLanes < kBf16Depth) to += key % kBf16Panel;
    if (floats != nullptr) {
      hn::StoreU(low, F(), floats + c);
      hn::StoreU(high, F(), floats + c + kSecond);
    }
    if (scales != nullptr) {
      const auto scale = [this](int64_t at) HWY_ATTR {
        return hn::Mul(hn::LoadU(F(), scales + at), hn::Set(F(), unit));
      };
      low = hn::Mul(low, scale(c));
      high = hn::Mul(high, scale(c + kSecond));
    }
    const VF pair = PairOf(low, high);
    hn::StoreU(pair, F(), to);
    if (two_terms) {
      const hn::RebindToUnsigned<F> d;
      const auto bits = hn::BitCast(d, pair);
      const auto first_low = hn::ShiftLeft<16>(bits);
      const auto first_high = hn::And(bits, hn::Set(d, 0xFFFF0000U));
      hn::StoreU(PairOf(hn::Sub(low, hn::BitCast(F(), first_low)),
                        hn::Sub(high, hn::BitCast(F(), first_high))),
                 F(), to + kBf16WeightTerm);
    }
  }
};

// What 2^x is taken of, for a score: exponent * (score - max). kScaled: the
// exponent is not 1.
template <bool kScaled>
struct Exponents {
  VF top;
  VF exponent;

  HWY_INLINE VF Of(const float* scores) const {
    const VF x = hn::Sub(hn::LoadU(F(), scores), top);
    return Clamped(kScaled ? hn::Mul(x, exponent) : x);
  }
};

// A row's weights from its scores, which may pass the maximum by any amount.
// Returns their sums, lane by lane. Scores and weights may share their place.
template <bool kScaled, class Weights>
HWY_INLINE VF WeightsOfRow(const Columns& columns,
                           const Exponents<kScaled>& exponents,
                           const float* scores, const Weights& weights) {
  const F d;
  constexpr int64_t kLanes = Weights::kLanes;
  constexpr int64_t kSecond = Weights::kSecond;
  constexpr int64_t kNextTwo = Weights::kNextTwo;
  VF sum0 = hn::Zero(d);
  VF sum1 = sum0;
  int64_t c = columns.first;
  while (c + kSecond + kNextTwo + kLanes <= columns.last) {
    VF x0 = exponents.Of(scores + c);
    VF x1 = exponents.Of(scores + c + kSecond);
    VF x2 = exponents.Of(scores + c + kNextTwo);
    VF x3 = exponents.Of(scores + c + kNextTwo + kSecond);
    Exp2Four(x0, x1, x2, x3);
    weights.Store(c, x0, x1);
    weights.Store(c + kNextTwo, x2, x3);
    sum0 = hn::Add(sum0, hn::Add(x0, x1));
    sum1 = hn::Add(sum1, hn::Add(x2, x3));
    c = Weights::AfterTwo(Weights::AfterTwo(c));
  }
  if (c + kSecond + kLanes <= columns.last) {
    const VF x0 = Exp2(exponents.Of(scores + c));
    const VF x1 = Exp2(exponents.Of(scores + c + kSecond));
    weights.Store(c, x0, x1);
    sum0 = hn::Add(sum0, hn::Add(x0, x1));
    c = Weights::AfterTwo(c);
  }
  if constexpr (!Weights::kWholeTwos) {
    if (c < columns.last) {
      const VF x = Exp2(exponents.Of(scores + c));
      hn::StoreU(x, d, weights.floats + c);
      sum1 = hn::Add(sum1, x);
    }
  }
  return hn::Add(sum0, sum1);
}

// The softmax of up to four rows of a micro-tile, which share the reductions of
// their maxima and sums. weights_of(row) says where a row's weights go.
template <bool kScaled, class WeightsOf>
struct FourRows {
  const RowStates& states;
  const WeightsOf& weights_of;
  int64_t row;          // the first, in the micro-tile
  int64_t at;           // the first, in the block
  int64_t count;        // 1 to 4
  const float* scores;  // of the first
  bool done[4];

  HWY_INLINE VF Weights(const Columns& columns, int64_t n, float top) const {
    const Exponents<kScaled> exponents = {hn::Set(F(), top),
                                          hn::Set(F(), states.exponent)};
    return WeightsOfRow(columns, exponents, scores + n * kScoreStride,
                        weights_of(row + n));
  }

  // Weights relative to the maxima so far, which all rows have. A row is done
  // unless its scores pass its maximum by much: that saves most rows the look
  // for the tile's own. Its weights sum to no more than its keys then, as those
  // relative to its own maximum do: values that are safe from overflow with
  // those (docs/numerics.md) are with these.
  HWY_INLINE void RelativeToEarlierMaxima(const Columns& columns) {
    VF vectors[4];
    float sums[4];
    for (int64_t n = 0; n < 4; ++n) {
      vectors[n] =
          n < count ? Weights(columns, n, states.max[at + n]) : hn::Zero(F());
    }
    ReduceLanes(vectors, AddOp(), sums);
    const auto keys = static_cast<float>(columns.end - columns.begin);
    for (int64_t n = 0; n < count; ++n) {
      done[n] = sums[n] <= keys;  // false where it is NaN
      if (done[n]) states.sum[at + n] += sums[n];
    }
  }

  // Weights relative to the new maxima, for rows that are not done. factors:
  // what the weighted values gathered so far must be multiplied by.
  HWY_INLINE void RelativeToNewMaxima(const Columns& columns, float* factors) {
    VF vectors[4];
    float tops[4];
    float sums[4];
    for (int64_t n = 0; n < 4; ++n) {
      vectors[n] = n < count && !done[n]
                       ? MaxOfRow(columns, scores + n * kScoreStride)
                       : MinusInfinity();
    }
    ReduceLanes(vectors, MaxOp(), tops);
    for (int64_t n = 0; n < 4; ++n) {
      vectors[n] = hn::Zero(F());
      if (n >= count || done[n]) continue;
      tops[n] = HWY_MAX(states.max[at + n], tops[n]);
      // No key takes part yet, or all that do are NaN.
      if (tops[n] == -__builtin_inff()) tops[n] = 0.0F;
      vectors[n] = Weights(columns, n, tops[n]);
    }
    ReduceLanes(vectors, AddOp(), sums);
    for (int64_t n = 0; n < count; ++n) {
      if (!done[n] && sums[n] != 0.0F) {
        factors[n] = Raise(at + n, tops[n], sums[n]);
      }
    }
  }

  HWY_INLINE float Raise(int64_t to, float top, float sum) const {
    SoftmaxState<double> state = {states.max[to], states.sum[to]};
    const double factor = state.RaiseTo(top, [this](double rise) HWY_ATTR {
      return static_cast<double>(hn::GetLane(
          Exp2(hn::Set(F(), static_cast<float>(rise) * states.exponent))));
    });
    states.max[to] = top;
    states.sum[to] = state.sum + sum;
    return static_cast<float>(factor);
  }
};

// The online softmax: weights of a micro-tile from its final scores, and its
// rows' states with the tile's keys. `fresh`: some row has no maximum yet.
// factors: what the weighted values gathered so far must be multiplied by.
template <bool kScaled, class WeightsOf>
HWY_INLINE void SoftmaxOfScaledRows(const TileArgs& args, int64_t first_row,
                                    int64_t rows, const Columns& columns,
                                    bool fresh, const WeightsOf& weights_of,
                                    float* factors) {
  for (int64_t r = 0; r < rows; r += 4) {
    FourRows<kScaled, WeightsOf> four = {
        .states = args.states,
        .weights_of = weights_of,
        .row = r,
        .at = first_row + r,
        .count = HWY_MIN(rows - r, 4),
        .scores = args.scores + r * kScoreStride,
        .done = {}};
    if (!fresh) four.RelativeToEarlierMaxima(columns);
    bool all_done = true;
    for (int64_t n = 0; n < four.count; ++n) {
      factors[r + n] = 1.0F;
      all_done = all_done && four.done[n];
    }
    if (!all_done) four.RelativeToNewMaxima(columns, factors + r);
  }
}

template <class WeightsOf>
HWY_INLINE void SoftmaxOfRows(const TileArgs& args, int64_t first_row,
                              int64_t rows, const Columns& columns, bool fresh,
                              const WeightsOf& weights_of, float* factors) {
  if (args.states.exponent == 1.0F) {
    SoftmaxOfScaledRows<false>(args, first_row, rows, columns, fresh,
                               weights_of, factors);
  } else {
    SoftmaxOfScaledRows<true>(args, first_row, rows, columns, fresh, weights_of,
                              factors);
  }
}

// Whether some row of a micro-tile has no maximum yet.
HWY_INLINE bool AnyRowIsFresh(const RowStates& states, int64_t first_row,
                              int64_t rows) {
  for (int64_t r = 0; r < rows; ++r) {
    if (states.max[first_row + r] == -__builtin_inff()) return true;
  }
  return false;
}

// A row's dropout factors, from the tile's first key on; good until the next
// call.
HWY_INLINE const float* DropoutOfRow(const TileArgs& args, int64_t row,
                                     const Columns& columns) {
  float* line = args.scores + kDropoutRow * kScoreStride;
  args.dropout.fill(args.dropout.context, row,
                    args.epilogue.first_key + columns.begin,
                    columns.end - columns.begin, line + columns.begin);
  return line;
}

// Multiplies a row by its dropout factors.
HWY_INLINE void DropRow(const TileArgs& args, int64_t row,
                        const Columns& columns, float* weights) {
  const float* const line = DropoutOfRow(args, row, columns);
  for (int64_t j = columns.begin; j < columns.end; ++j) weights[j] *= line[j];
}

}  // namespace attention::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
// NOLINTEND(misc-definitions-in-headers)

#endif  // include guard
