// A block of rows against a tile of keys with QK and PV in BF16: what stands
// between them, in FP32, and the operands. Included once per instruction
// set.
#if defined(ATTENTION_CORE_CPU_BF16_BF16_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTENTION_CORE_CPU_BF16_BF16_INL_H_
#undef ATTENTION_CORE_CPU_BF16_BF16_INL_H_
#else
#define ATTENTION_CORE_CPU_BF16_BF16_INL_H_
#endif

#include "core/cpu/bf16/products.h"
#include "core/cpu/kernels/math-inl.h"
#include "core/cpu/kernels/tile-inl.h"
#include "hwy/highway.h"

// Compiled once per instruction set, into a namespace of its own each time.
// NOLINTBEGIN(misc-definitions-in-headers)

// Every processor with products of BF16 has AVX-512 or more.
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
HWY_BEFORE_NAMESPACE();
namespace attention::cpu::HWY_NAMESPACE {

using Pairs = hn::CappedTag<uint16_t, 2 * kMaxLanes>;
static_assert(hn::MaxLanes(F()) == kBf16Depth &&
              hn::MaxLanes(Pairs()) == kBf16Panel);

// kClears: 0 takes the place of what is not finite. Whether nothing is.
template <bool kClears>
HWY_INLINE bool CopyRowsOfBf16(const RowSource& from, int64_t rows,
                               int64_t padded_rows, int64_t width, float* to,
                               int64_t to_stride) {
  const Pairs d;
  const hn::Repartition<uint8_t, Pairs> bytes;
  const bool dense = from.column_stride == 2;
  const int64_t padded = 2 * to_stride;
  bool finite = true;
  const auto store = [&](hn::Vec<Pairs> v, uint16_t* at) HWY_ATTR {
    if constexpr (kClears) {
      const auto infinity = hn::Set(d, uint16_t{0x7F80});
      const auto bad = hn::Eq(hn::And(v, infinity), infinity);
      finite = finite && hn::AllFalse(d, bad);
      v = hn::IfThenZeroElse(bad, v);
    }
    hn::Store(v, d, at);
  };
  HWY_ALIGN uint16_t piece[kBf16Panel];
  for (int64_t r = 0; r < rows; ++r) {
    const unsigned char* row = from.data + r * from.row_stride;
    auto* out = reinterpret_cast<uint16_t*>(to + r * to_stride);
    int64_t i = 0;
    for (; dense && i + kBf16Panel <= width; i += kBf16Panel) {
      store(hn::BitCast(d, hn::LoadU(bytes, row + 2 * i)), out + i);
    }
    for (; i < padded; i += kBf16Panel) {
      hn::Store(hn::Zero(d), d, piece);
      const int64_t count = HWY_MIN(kBf16Panel, width - i);
      for (int64_t k = 0; k < count; ++k) {
        memcpy(piece + k, row + (i + k) * from.column_stride, 2);
      }
      store(hn::Load(d, piece), out + i);
    }
  }
  for (int64_t i = rows * to_stride; i < padded_rows * to_stride; ++i) {
    to[i] = 0.0F;
  }
  return finite;
}

void CopyBf16Rows(const RowSource& from, int64_t rows, int64_t padded_rows,
                  int64_t width, float* to, int64_t to_stride) {
  CopyRowsOfBf16<false>(from, rows, padded_rows, width, to, to_stride);
}

bool CopyFiniteBf16Rows(const RowSource& from, int64_t rows,
                        int64_t padded_rows, int64_t width, float* to,
                        int64_t to_stride) {
  return CopyRowsOfBf16<true>(from, rows, padded_rows, width, to, to_stride);
}

void PackBf16Values(const float* rows, int64_t count, int64_t panels,
                    float* packed) {
  const hn::RebindToUnsigned<F> d;
  const hn::Rebind<uint16_t, F> narrow;
  const int64_t stride = panels * kBf16Panel;  // elements
  for (int64_t k = 0; k < count; k += kBf16Panel) {
    const auto* low = reinterpret_cast<const uint16_t*>(rows) + k * stride;
    const uint16_t* high = low + kBf16Depth * stride;
    for (int64_t c = 0; c < stride; c += kBf16Panel) {
      for (int64_t i = 0; i < kBf16Depth; ++i) {
        for (int64_t n = 0; n < kBf16Panel; n += kBf16Depth) {
          const int64_t at = i * stride + c + n;
          const auto a = hn::PromoteTo(d, hn::Load(narrow, low + at));
          const auto b = hn::PromoteTo(d, hn::Load(narrow, high + at));
          hn::Store(hn::BitCast(F(), hn::Or(a, hn::ShiftLeft<16>(b))), F(),
                    packed);
          packed += kBf16Depth;
        }
      }
    }
  }
}

// Whole panels that hold every key that one of some rows may attend.
HWY_INLINE Columns PanelsOfRows(const TileArgs& args, int64_t first_row,
                                int64_t rows) {
  Columns columns = ColumnsOfRows(args, first_row, static_cast<int>(rows));
  columns.last = (columns.last + kBf16Panel - 1) / kBf16Panel * kBf16Panel;
  return columns;
}

HWY_INLINE void ScoreBf16Rows(const TileArgs& args, int64_t first_row,
                              int64_t rows, const Columns& columns) {
  const Bf16Operands& bf16 = args.bf16;
  bf16.products->scores(bf16.queries + first_row * bf16.width,
                        bf16.keys + columns.first * bf16.width, bf16.width,
                        rows, (columns.last - columns.first) / kBf16Panel,
                        args.scores + columns.first);
}

// Makes scores of what QK gave; returns what they are still to
// be multiplied by, which saves most rows a pass over them.
HWY_INLINE float FinishBf16Scores(const TileArgs& args, int64_t row,
                                  const Columns& columns, float* scores) {
  const Epilogue& epilogue = args.epilogue;
  if (epilogue.softcap == 0.0F && epilogue.key_addend == nullptr &&
      epilogue.bias_rows == nullptr && epilogue.mask_rows == nullptr &&
      args.begin[row] <= columns.first && args.end[row] >= columns.last) {
    return epilogue.factor;
  }
  FinishScores(args, row, columns, scores);
  return 1.0F;
}

// Two vectors of weights, rounded to BF16, as pairs. A tie is rounded up.
HWY_INLINE VF PairOf(VF low, VF high) {
  const hn::RebindToUnsigned<F> d;
  const auto half = hn::Set(d, 0x8000U);
  const auto a = hn::Add(hn::BitCast(d, low), half);
  const auto b = hn::Add(hn::BitCast(d, high), half);
  return hn::BitCast(
      F(), hn::Or(hn::ShiftRight<16>(a), hn::And(b, hn::Set(d, 0xFFFF0000U))));
}

HWY_INLINE VF MaxOfScaledRow(const Columns& columns, float factor,
                             const float* scores) {
  const F d;
  const VF scale = hn::Set(d, factor);
  VF max0 = MinusInfinity();
  VF max1 = max0;
  for (int64_t c = columns.first; c < columns.last; c += kBf16Panel) {
    max0 = hn::Max(max0, hn::Mul(hn::LoadU(d, scores + c), scale));
    max1 = hn::Max(max1, hn::Mul(hn::LoadU(d, scores + c + 16), scale));
  }
  return hn::Max(max0, max1);
}

// Pairs of the weights 2^(factor * score - max), whose sums, before they are
// rounded, it returns lane by lane. Scores may pass max by any amount.
// kKeeps: puts the weights into the place of the scores, too.
template <bool kKeeps>
HWY_INLINE VF Bf16WeightsOfRow(const Columns& columns, float factor, float max,
                               float* HWY_RESTRICT scores,
                               float* HWY_RESTRICT pairs) {
  const F d;
  const VF scale = hn::Set(d, factor);
  const VF top = hn::Set(d, max);
  // Not fused: the weights that are returned have to come from the same sums.
  const auto weight_of = [=](const float* at) HWY_ATTR {
    return Clamped(hn::Sub(hn::Mul(hn::LoadU(d, at), scale), top));
  };
  VF sum0 = hn::Zero(d);
  VF sum1 = sum0;
  int64_t c = columns.first;
  for (; c + 64 <= columns.last; c += 64) {
    float* const at = scores + c;
    VF x0 = weight_of(at);
    VF x1 = weight_of(at + 16);
    VF x2 = weight_of(at + 32);
    VF x3 = weight_of(at + 48);
    Exp2Four(x0, x1, x2, x3);
    if constexpr (kKeeps) {
      hn::StoreU(x0, d, at);
      hn::StoreU(x1, d, at + 16);
      hn::StoreU(x2, d, at + 32);
      hn::StoreU(x3, d, at + 48);
    }
    sum0 = hn::Add(sum0, hn::Add(x0, x1));
    sum1 = hn::Add(sum1, hn::Add(x2, x3));
    hn::StoreU(PairOf(x0, x1), d, pairs);
    hn::StoreU(PairOf(x2, x3), d, pairs + 16);
    pairs += 32;
  }
  for (; c < columns.last; c += kBf16Panel) {
    const VF x0 = Exp2(weight_of(scores + c));
    const VF x1 = Exp2(weight_of(scores + c + 16));
    if constexpr (kKeeps) {
      hn::StoreU(x0, d, scores + c);
      hn::StoreU(x1, d, scores + c + 16);
    }
    sum0 = hn::Add(sum0, x0);
    sum1 = hn::Add(sum1, x1);
    hn::StoreU(PairOf(x0, x1), d, pairs);
    pairs += 16;
  }
  return hn::Add(sum0, sum1);
}

// Keeps and drops weights of a row whose scores have become weights.
HWY_INLINE void KeepAndDrop(const TileArgs& args, int64_t row,
                            const Columns& columns, float* weights,
                            float* pairs) {
  const F d;
  const bool keeps = args.keep_weights != nullptr;
  if (keeps && !args.keep_after_dropout) {
    KeepWeights(args, row, 1, columns, weights);
  }
  if (args.dropout != nullptr) {
    DropRow(args, row, columns, weights);
    for (int64_t c = columns.first; c < columns.last; c += kBf16Panel) {
      hn::StoreU(
          PairOf(hn::LoadU(d, weights + c), hn::LoadU(d, weights + c + 16)), d,
          pairs + (c - columns.first) / 2);
    }
  }
  if (keeps && args.keep_after_dropout) {
    KeepWeights(args, row, 1, columns, weights);
  }
}

// Up to four rows share the reductions of their maxima and sums.
struct Bf16Rows {
  const TileArgs& args;
  int64_t row;    // the first
  int count;      // 1 to 4
  float* scores;  // of the first
  float* pairs;
  float factor[4];  // of the scores
  bool done[4];

  HWY_INLINE float* Scores(int n) const { return scores + n * kScoreStride; }
  HWY_INLINE float* PairsOf(int n) const {
    return pairs + n * kBf16WeightStride;
  }

  // Weights relative to the maxima so far, as in SoftmaxOfLaterRows(), row by
  // row.
  HWY_INLINE void AtOnce(const Columns& columns) {
    VF vectors[4];
    float sums[4];
    for (int n = 0; n < 4; ++n) vectors[n] = hn::Zero(F());
    for (int n = 0; n < count; ++n) {
      const float max = args.max[row + n];
      done[n] = max != -__builtin_inff();
      if (!done[n]) continue;
      vectors[n] = Bf16WeightsOfRow<false>(columns, factor[n], max, Scores(n),
                                           PairsOf(n));
    }
    ReduceLanes<4>(vectors, AddOp(), sums);
    for (int n = 0; n < count; ++n) {
      done[n] = done[n] && sums[n] <= kLargestSum;  // false where it is NaN
      if (done[n]) args.sum[row + n] += sums[n];
    }
  }

  // Weights relative to the new maxima, for rows that are not done.
  HWY_INLINE void Exactly(const Columns& columns, float* factors) {
    const F d;
    const bool keeps = args.keep_weights != nullptr || args.dropout != nullptr;
    VF vectors[4];
    float tops[4];
    float sums[4];
    for (int n = 0; n < 4; ++n) {
      vectors[n] = n < count && !done[n]
                       ? MaxOfScaledRow(columns, factor[n], Scores(n))
                       : MinusInfinity();
    }
    ReduceLanes<4>(vectors, MaxOp(), tops);
    for (int n = 0; n < 4; ++n) {
      vectors[n] = hn::Zero(d);
      if (n >= count || done[n]) continue;
      tops[n] = TopOfRow(args, row + n, tops[n], columns, Scores(n));
      vectors[n] = keeps ? Bf16WeightsOfRow<true>(columns, factor[n], tops[n],
                                                  Scores(n), PairsOf(n))
                         : Bf16WeightsOfRow<false>(columns, factor[n], tops[n],
                                                   Scores(n), PairsOf(n));
    }
    ReduceLanes<4>(vectors, AddOp(), sums);
    for (int n = 0; n < count; ++n) {
      if (done[n]) continue;
      factors[n] = MergeRow(args, row + n, tops[n], sums[n]);
      if (keeps) KeepAndDrop(args, row + n, columns, Scores(n), PairsOf(n));
    }
  }
};

// Weights of some rows, as pairs, from the scores of QK; factors as in
// SoftmaxOfRows().
HWY_INLINE void SoftmaxBf16Rows(const TileArgs& args, int64_t first_row,
                                int64_t rows, const Columns& columns,
                                float* factors) {
  for (int64_t r = 0; r < rows; r += 4) {
    Bf16Rows some = {.args = args,
                     .row = first_row + r,
                     .count = static_cast<int>(HWY_MIN(rows - r, 4)),
                     .scores = args.scores + r * kScoreStride,
                     .pairs = args.bf16.weights + r * kBf16WeightStride,
                     .factor = {},
                     .done = {}};
    bool all_done = false;
    for (int n = 0; n < some.count; ++n) {
      factors[r + n] = 1.0F;
      some.factor[n] =
          FinishBf16Scores(args, some.row + n, columns, some.Scores(n));
    }
    if (args.keep_weights == nullptr && args.dropout == nullptr) {
      some.AtOnce(columns);
      all_done = true;
      for (int n = 0; n < some.count; ++n) all_done = all_done && some.done[n];
    }
    if (!all_done) some.Exactly(columns, factors + r);
  }
}

HWY_NOINLINE void AttendBf16Rows(const TileArgs& args, int64_t first_row,
                                 int64_t rows) {
  const Bf16Operands& bf16 = args.bf16;
  const Columns columns = PanelsOfRows(args, first_row, rows);
  if (columns.end == 0) {
    if (args.keep_weights != nullptr) {
      KeepWeights(args, first_row, rows, columns, args.scores);
    }
    return;
  }
  ScoreBf16Rows(args, first_row, rows, columns);
  float factors[kMaxMicroRows];
  SoftmaxBf16Rows(args, first_row, rows, columns, factors);
  float* const output = args.output + first_row * args.value_width;
  for (int64_t r = 0; r < rows; ++r) {
    if (factors[r] == 1.0F) continue;
    const VF factor = hn::Set(F(), factors[r]);
    float* const at = output + r * args.value_width;
    for (int64_t c = 0; c < args.value_width; c += 16) {
      hn::StoreU(hn::Mul(hn::LoadU(F(), at + c), factor), F(), at + c);
    }
  }
  const int64_t panel = columns.first / kBf16Panel;
  bf16.products->add_values(
      bf16.weights,
      bf16.values + panel * bf16.value_panels * kBf16Depth * kBf16Panel,
      bf16.value_panels, rows, columns.last / kBf16Panel - panel, output,
      args.value_width);
}

void AttendBf16(const TileArgs& args) {
  args.bf16.products->begin();
  for (int64_t r = 0; r < args.rows; r += kMaxMicroRows) {
    AttendBf16Rows(args, r, HWY_MIN(kMaxMicroRows, args.rows - r));
  }
  args.bf16.products->end();
}

void StoreBf16Weights(const TileArgs& args, const WeightArgs& out) {
  const F d;
  args.bf16.products->begin();
  for (int64_t first = 0; first < args.rows; first += kMaxMicroRows) {
    const int64_t rows = HWY_MIN(kMaxMicroRows, args.rows - first);
    const Columns columns = PanelsOfRows(args, first, rows);
    if (columns.end == 0) continue;
    ScoreBf16Rows(args, first, rows, columns);
    for (int64_t row = first; row < first + rows; ++row) {
      float* scores = args.scores + (row - first) * kScoreStride;
      const VF factor =
          hn::Set(d, FinishBf16Scores(args, row, columns, scores));
      for (int64_t c = columns.first; c < columns.last; c += 16) {
        hn::StoreU(hn::Mul(hn::LoadU(d, scores + c), factor), d, scores + c);
      }
      WeightMicroRows{args, out}.StoreRow(row, columns, scores);
    }
  }
  args.bf16.products->end();
}

}  // namespace attention::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#else
namespace attention::cpu::HWY_NAMESPACE {

// In the place of functions.
// NOLINTBEGIN(readability-identifier-naming)
inline constexpr decltype(Kernels::copy_bf16) CopyBf16Rows = nullptr;
inline constexpr decltype(Kernels::copy_finite_bf16) CopyFiniteBf16Rows =
    nullptr;
inline constexpr decltype(Kernels::pack_bf16_values) PackBf16Values = nullptr;
inline constexpr decltype(Kernels::attend_bf16) AttendBf16 = nullptr;
inline constexpr decltype(Kernels::store_weights_bf16) StoreBf16Weights =
    nullptr;
// NOLINTEND(readability-identifier-naming)

}  // namespace attention::cpu::HWY_NAMESPACE
#endif
// NOLINTEND(misc-definitions-in-headers)

#endif  // include guard
