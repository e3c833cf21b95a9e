// A block of rows against a tile of keys with both products in BF16: what
// stands between them, in FP32, and the operands. Included once per instruction
// set.
#if defined(ATTENTION_CORE_CPU_BF16_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTENTION_CORE_CPU_BF16_INL_H_
#undef ATTENTION_CORE_CPU_BF16_INL_H_
#else
#define ATTENTION_CORE_CPU_BF16_INL_H_
#endif

#include "core/cpu/bf16_products.h"
#include "core/cpu/math-inl.h"
#include "core/cpu/tile-inl.h"
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

// The largest magnitude of many, and the smallest but 0 (less the last bit: 0
// is the largest number then).
struct Magnitudes {
  hn::Vec<Pairs> largest;
  hn::Vec<Pairs> smallest;

  HWY_INLINE void Add(hn::Vec<Pairs> v) {
    const Pairs d;
    v = hn::And(v, hn::Set(d, uint16_t{0x7FFF}));
    largest = hn::Max(largest, v);
    smallest = hn::Min(smallest, hn::Sub(v, hn::Set(d, uint16_t{1})));
  }

  // Whether the products serve all of them.
  HWY_INLINE bool AreServed() const {
    const Pairs d;
    const auto most = hn::Set(d, kBf16Most);
    const auto least = hn::Set(d, static_cast<uint16_t>(kBf16Least - 1));
    return hn::AllTrue(d, hn::Eq(hn::Max(largest, most), most)) &&
           hn::AllTrue(d, hn::Eq(hn::Min(smallest, least), least));
  }
};

bool CopyBf16Rows(const RowSource& from, int64_t rows, int64_t padded_rows,
                  int64_t width, float* to, int64_t to_stride) {
  const Pairs d;
  const hn::Repartition<uint8_t, Pairs> bytes;
  const bool dense = from.column_stride == 2;
  const int64_t padded = 2 * to_stride;
  Magnitudes magnitudes = {hn::Zero(d), hn::Set(d, uint16_t{0xFFFF})};
  HWY_ALIGN uint16_t piece[kBf16Panel];
  for (int64_t r = 0; r < rows; ++r) {
    const unsigned char* row = from.data + r * from.row_stride;
    auto* out = reinterpret_cast<uint16_t*>(to + r * to_stride);
    int64_t i = 0;
    for (; dense && i + kBf16Panel <= width; i += kBf16Panel) {
      const auto v = hn::BitCast(d, hn::LoadU(bytes, row + 2 * i));
      magnitudes.Add(v);
      hn::Store(v, d, out + i);
    }
    for (; i < padded; i += kBf16Panel) {
      hn::Store(hn::Zero(d), d, piece);
      const int64_t count = HWY_MIN(kBf16Panel, width - i);
      for (int64_t k = 0; k < count; ++k) {
        memcpy(piece + k, row + (i + k) * from.column_stride, 2);
      }
      const auto v = hn::Load(d, piece);
      magnitudes.Add(v);
      hn::Store(v, d, out + i);
    }
  }
  for (int64_t i = rows * to_stride; i < padded_rows * to_stride; ++i) {
    to[i] = 0.0F;
  }
  return magnitudes.AreServed();
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

// Whole panels that hold every key that one of the group's rows may attend.
HWY_INLINE Columns PanelsOfGroup(const TileArgs& args, int64_t first_row,
                                 int64_t rows) {
  Columns columns = ColumnsOfGroup(args, first_row, static_cast<int>(rows));
  columns.last = (columns.last + kBf16Panel - 1) / kBf16Panel * kBf16Panel;
  return columns;
}

HWY_INLINE void ScoreBf16Group(const TileArgs& args, int64_t first_row,
                               int64_t rows, const Columns& columns) {
  const Bf16Operands& bf16 = args.bf16;
  bf16.products->scores(bf16.queries + first_row * bf16.width,
                        bf16.keys + columns.first * bf16.width, bf16.width,
                        rows, (columns.last - columns.first) / kBf16Panel,
                        args.scores + columns.first);
}

// Makes scores of what the first product gave; returns what they are still to
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
  TileArgs of_row = args;
  of_row.scores = weights;
  const AttendGroup group{of_row};
  if (args.kept != nullptr && !args.keep_after_dropout) {
    group.Keep<1>(row, columns);
  }
  if (args.dropout != nullptr) {
    DropRow(args, row, columns, weights);
    for (int64_t c = columns.first; c < columns.last; c += kBf16Panel) {
      hn::StoreU(
          PairOf(hn::LoadU(d, weights + c), hn::LoadU(d, weights + c + 16)), d,
          pairs + (c - columns.first) / 2);
    }
  }
  if (args.kept != nullptr && args.keep_after_dropout) {
    group.Keep<1>(row, columns);
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

  // Weights relative to the maxima so far, as in WeightsAtOnce(), row by row.
  HWY_INLINE void AtOnce(const Columns& columns) {
    constexpr float kLargestSum = 16777216.0F;
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
    const bool keeps = args.kept != nullptr || args.dropout != nullptr;
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
      tops[n] = HWY_MAX(args.max[row + n], tops[n]);
      // Without a maximum no key takes part yet, or a score is NaN, which then
      // shows in the sum.
      const float top = tops[n] == -__builtin_inff() ? 0.0F : tops[n];
      vectors[n] = keeps ? Bf16WeightsOfRow<true>(columns, factor[n], top,
                                                  Scores(n), PairsOf(n))
                         : Bf16WeightsOfRow<false>(columns, factor[n], top,
                                                   Scores(n), PairsOf(n));
    }
    ReduceLanes<4>(vectors, AddOp(), sums);
    for (int n = 0; n < count; ++n) {
      if (done[n]) continue;
      float& max = args.max[row + n];
      if (tops[n] != max) {
        factors[n] = hn::GetLane(Exp2(hn::Set(d, max - tops[n])));
        max = tops[n];
      }
      args.sum[row + n] = args.sum[row + n] * factors[n] + sums[n];
      if (keeps) KeepAndDrop(args, row + n, columns, Scores(n), PairsOf(n));
    }
  }
};

// Weights of a group, as pairs, from the scores of the first product; factors
// as in SoftmaxGroup().
HWY_INLINE void SoftmaxBf16Group(const TileArgs& args, int64_t first_row,
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
    if (args.kept == nullptr && args.dropout == nullptr) {
      some.AtOnce(columns);
      all_done = true;
      for (int n = 0; n < some.count; ++n) all_done = all_done && some.done[n];
    }
    if (!all_done) some.Exactly(columns, factors + r);
  }
}

HWY_NOINLINE void AttendBf16Group(const TileArgs& args, int64_t first_row,
                                  int64_t rows) {
  const Bf16Operands& bf16 = args.bf16;
  const Columns columns = PanelsOfGroup(args, first_row, rows);
  if (columns.end == 0) {
    for (int64_t r = 0; args.kept != nullptr && r < rows; ++r) {
      AttendGroup{args}.Keep<1>(first_row + r, columns);
    }
    return;
  }
  ScoreBf16Group(args, first_row, rows, columns);
  float factors[kMaxGroupRows];
  SoftmaxBf16Group(args, first_row, rows, columns, factors);
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
  for (int64_t r = 0; r < args.rows; r += kMaxGroupRows) {
    AttendBf16Group(args, r, HWY_MIN(kMaxGroupRows, args.rows - r));
  }
  args.bf16.products->end();
}

// As WeightGroup does.
void StoreBf16Weights(const TileArgs& args, const WeightArgs& out) {
  const F d;
  args.bf16.products->begin();
  for (int64_t first = 0; first < args.rows; first += kMaxGroupRows) {
    const int64_t rows = HWY_MIN(kMaxGroupRows, args.rows - first);
    const Columns columns = PanelsOfGroup(args, first, rows);
    if (columns.end == 0) continue;
    ScoreBf16Group(args, first, rows, columns);
    for (int64_t row = first; row < first + rows; ++row) {
      float* scores = args.scores + (row - first) * kScoreStride;
      if (args.max[row] == -__builtin_inff()) continue;
      const VF factor =
          hn::Set(d, FinishBf16Scores(args, row, columns, scores));
      const VF max = hn::Set(d, args.max[row]);
      const VF inverse = hn::Set(d, out.inverse_sum[row]);
      for (int64_t c = columns.first; c < columns.last; c += 16) {
        const VF p =
            Exp2(hn::Sub(hn::Mul(hn::LoadU(d, scores + c), factor), max));
        hn::StoreU(hn::Mul(p, inverse), d, scores + c);
      }
      if (out.after_dropout) DropRow(args, row, columns, scores);
      const int64_t begin = args.begin[row];
      if (begin >= args.end[row]) continue;
      memcpy(out.weights[row] + begin, scores + begin,
             static_cast<size_t>(args.end[row] - begin) * sizeof(float));
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
inline constexpr decltype(Kernels::pack_bf16_values) PackBf16Values = nullptr;
inline constexpr decltype(Kernels::attend_bf16) AttendBf16 = nullptr;
inline constexpr decltype(Kernels::store_weights_bf16) StoreBf16Weights =
    nullptr;
// NOLINTEND(readability-identifier-naming)

}  // namespace attention::cpu::HWY_NAMESPACE
#endif
// NOLINTEND(misc-definitions-in-headers)

#endif  // include guard
