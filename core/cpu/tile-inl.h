// A block of rows against a tile of keys: scores, what is done to them,
// softmax, second product. Included once per instruction set.
#if defined(ATTENTION_CORE_CPU_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTENTION_CORE_CPU_TILE_INL_H_
#undef ATTENTION_CORE_CPU_TILE_INL_H_
#else
#define ATTENTION_CORE_CPU_TILE_INL_H_
#endif

#include "core/cpu/convert-inl.h"
#include "core/cpu/math-inl.h"
#include "core/cpu/pack-inl.h"
#include "core/cpu/score-inl.h"
#include "hwy/highway.h"

// Compiled once per instruction set, into a namespace of its own each time.
// NOLINTBEGIN(misc-definitions-in-headers)
HWY_BEFORE_NAMESPACE();
namespace attention::cpu::HWY_NAMESPACE {

HWY_INLINE VF MinusInfinity() { return hn::Set(F(), -__builtin_inff()); }

// Columns of a tile that a group computes: whole vectors that hold every key
// that any of its rows may attend, and those keys themselves.
struct Columns {
  int64_t first;  // a panel's begin
  int64_t last;   // past the last vector
  int64_t begin;  // first key
  int64_t end;    // past the last key
};

HWY_INLINE Columns ColumnsOfGroup(const TileArgs& args, int64_t first_row,
                                  int rows) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(F()));
  int64_t begin = kMaxTileKeys;
  int64_t end = 0;
  for (int r = 0; r < rows; ++r) {
    const int64_t b = args.begin[first_row + r];
    const int64_t e = args.end[first_row + r];
    if (b >= e) continue;
    begin = HWY_MIN(begin, b);
    end = HWY_MAX(end, e);
  }
  if (begin >= end) return {0, 0, 0, 0};
  return {begin / (2 * lanes) * (2 * lanes), (end + lanes - 1) / lanes * lanes,
          begin, end};
}

// The bias of a row in units of the softmax, -inf where attend_mask leaves a
// key out, for keys begin ... end - 1; 0 outside.
HWY_INLINE void LoadAddends(const TileArgs& args, int64_t row,
                            const Columns& columns, float* line) {
  const Epilogue& epilogue = args.epilogue;
  const int64_t begin = args.begin[row];
  const int64_t end = args.end[row];
  for (int64_t j = columns.first; j < columns.last; ++j) line[j] = 0.0F;
  if (epilogue.bias_rows != nullptr) {
    const unsigned char* bias =
        epilogue.bias_rows[row] + epilogue.first_key * epilogue.bias_stride;
    const int64_t size = epilogue.bias_type == Element::kFloat32 ? 4 : 2;
    if (epilogue.bias_stride == size && IsAligned(bias, 4)) {
      WidenDense(epilogue.bias_type, bias + begin * size, end - begin,
                 line + begin);
    } else {
      for (int64_t j = begin; j < end; ++j) {
        line[j] = LoadOne(epilogue.bias_type, bias + j * epilogue.bias_stride);
      }
    }
    constexpr float kLog2E = 1.44269504F;
    for (int64_t j = begin; j < end; ++j) line[j] *= kLog2E;
  }
  if (epilogue.mask_rows != nullptr) {
    const unsigned char* mask =
        epilogue.mask_rows[row] + epilogue.first_key * epilogue.mask_stride;
    const float minus_infinity = -__builtin_inff();
    if (epilogue.mask_stride == 1) {
      for (int64_t j = begin; j < end; ++j) {
        line[j] = mask[j] != 0 ? line[j] : minus_infinity;
      }
    } else {
      for (int64_t j = begin; j < end; ++j) {
        if (mask[j * epilogue.mask_stride] == 0) line[j] = minus_infinity;
      }
    }
  }
}

// -inf for the columns outside begin ... end - 1: whole vectors between them
// are left alone.
HWY_INLINE void MaskEnds(const Columns& columns, int64_t begin, int64_t end,
                         float* scores) {
  const F d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const VF first = hn::Set(d, static_cast<float>(begin));
  const VF last = hn::Set(d, static_cast<float>(end));
  const auto mask = [&](int64_t c) HWY_ATTR {
    const VF index = hn::Iota(d, static_cast<float>(c));
    const auto kept = hn::And(hn::Ge(index, first), hn::Lt(index, last));
    hn::StoreU(hn::IfThenElse(kept, hn::LoadU(d, scores + c), MinusInfinity()),
               d, scores + c);
  };
  int64_t c = columns.first;
  for (; c < columns.last && (c < begin || begin >= end); c += lanes) mask(c);
  if (c + lanes <= end) c += (end - c) / lanes * lanes;
  for (; c < columns.last; c += lanes) mask(c);
}

// Softcap, bias and masks of one row of scores.
HWY_INLINE void FinishScores(const TileArgs& args, int64_t row,
                             const Columns& columns, float* scores) {
  const F d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const Epilogue& epilogue = args.epilogue;
  const VF minus_infinity = MinusInfinity();
  if (epilogue.row_addend != nullptr || epilogue.factor != 1.0F ||
      epilogue.softcap > 0.0F) {
    const VF factor = hn::Set(d, epilogue.factor);
    const VF softcap = hn::Set(d, epilogue.softcap);
    const VF row_addend = hn::Set(
        d, epilogue.row_addend == nullptr ? 0.0F : epilogue.row_addend[row]);
    for (int64_t c = columns.first; c < columns.last; c += lanes) {
      VF s = hn::MulAdd(hn::LoadU(d, scores + c), factor, row_addend);
      if (epilogue.softcap > 0.0F) s = hn::Mul(softcap, Tanh(s));
      hn::StoreU(s, d, scores + c);
    }
  }
  if (epilogue.bias_rows != nullptr || epilogue.mask_rows != nullptr) {
    float* line = args.scores + kMaxGroupRows * kScoreStride;
    LoadAddends(args, row, columns, line);
    for (int64_t c = columns.first; c < columns.last; c += lanes) {
      const VF addend = hn::LoadU(d, line + c);
      const VF s = hn::Add(hn::LoadU(d, scores + c), addend);
      hn::StoreU(
          hn::IfThenElse(hn::Eq(addend, minus_infinity), minus_infinity, s), d,
          scores + c);
    }
  }
  MaskEnds(columns, args.begin[row], args.end[row], scores);
}

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

// Replaces scores by 2^(score - max); returns their sums, lane by lane.
// kClamped: scores may pass max by any amount.
template <bool kClamped>
HWY_INLINE VF WeightsOfRow(const Columns& columns, float max, float* scores) {
  const F d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const VF top = hn::Set(d, max);
  VF sum0 = hn::Zero(d);
  VF sum1 = sum0;
  int64_t c = columns.first;
  for (; c + 4 * lanes <= columns.last; c += 4 * lanes) {
    float* const at = scores + c;
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
    hn::StoreU(x0, d, at);
    hn::StoreU(x1, d, at + lanes);
    hn::StoreU(x2, d, at + 2 * lanes);
    hn::StoreU(x3, d, at + 3 * lanes);
    sum0 = hn::Add(sum0, hn::Add(x0, x1));
    sum1 = hn::Add(sum1, hn::Add(x2, x3));
  }
  for (; c < columns.last; c += lanes) {
    const VF x = hn::Sub(hn::LoadU(d, scores + c), top);
    const VF p = Exp2(kClamped ? Clamped(x) : x);
    hn::StoreU(p, d, scores + c);
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

// Multiplies a row by its dropout factors.
HWY_INLINE void DropRow(const TileArgs& args, int64_t row,
                        const Columns& columns, float* p) {
  float* line = args.scores + (kMaxGroupRows + 1) * kScoreStride;
  args.dropout(args.dropout_context, row,
               args.dropout_first_key + columns.begin,
               columns.end - columns.begin, line + columns.begin);
  for (int64_t j = columns.begin; j < columns.end; ++j) p[j] *= line[j];
}

// Puts the group's weights, relative to the rows' new maxima, in the place of
// the scores and brings the rows' states up to date. factors: what the weighted
// values gathered so far must be multiplied by.
template <int kRows>
HWY_INLINE void SoftmaxGroup(const TileArgs& args, int64_t first_row,
                             const Columns& columns, float* factors) {
  const F d;
  float* const max = args.max + first_row;
  double* const sum = args.sum + first_row;
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
    tops[r] = HWY_MAX(max[r], tops[r]);
    if (tops[r] == -__builtin_inff()) {
      // No key takes part yet; scores that are NaN do not show in a maximum.
      if (HoldsNan(columns, scores)) sum[r] = __builtin_nan("");
      vectors[r] = WeightsOfRow<false>(columns, 0.0F, scores);
    } else {
      vectors[r] = WeightsOfRow<false>(columns, tops[r], scores);
    }
  }
  ReduceLanes<kRows>(vectors, AddOp(), sums);
  for (int r = 0; r < kRows; ++r) {
    factors[r] = 1.0F;
    if (tops[r] != max[r]) {
      factors[r] = hn::GetLane(Exp2(hn::Set(d, max[r] - tops[r])));
      max[r] = tops[r];
    }
    sum[r] = sum[r] * factors[r] + sums[r];
  }
}

// output[r] = output[r] * factor[r] + sum_j p[r][j] v[j], kVectors vectors
// wide.
template <int kRows, int kVectors>
HWY_INLINE void AddValues(const float* HWY_RESTRICT p, int64_t keys,
                          const float* HWY_RESTRICT values, int64_t stride,
                          const float* HWY_RESTRICT factors,
                          float* HWY_RESTRICT output, int64_t output_stride) {
  const F d;
  const size_t lanes = hn::Lanes(d);
  VF sums[kRows][kVectors];
  ATTENTION_UNROLL
  for (int r = 0; r < kRows; ++r) {
    ATTENTION_UNROLL
    for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::Zero(d);
  }
  for (int64_t j = 0; j < keys; ++j) {
    VF value[kVectors];
    ATTENTION_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      value[v] = hn::LoadU(d, values + static_cast<size_t>(v) * lanes);
    }
    ATTENTION_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const VF weight = hn::Set(d, p[r * kScoreStride]);
      ATTENTION_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        sums[r][v] = hn::MulAdd(weight, value[v], sums[r][v]);
      }
    }
    ++p;
    values += stride;
  }
  ATTENTION_UNROLL
  for (int r = 0; r < kRows; ++r) {
    const VF factor = hn::Set(d, factors[r]);
    ATTENTION_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      float* to = output + r * output_stride + static_cast<size_t>(v) * lanes;
      hn::StoreU(hn::MulAdd(hn::LoadU(d, to), factor, sums[r][v]), d, to);
    }
  }
}

template <int kRows>
HWY_INLINE void SecondProduct(const TileArgs& args, int64_t first_row,
                              const Columns& columns, const float* factors) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(F()));
  const float* p = args.scores + columns.begin;
  const float* values = args.values + columns.begin * args.value_stride;
  float* output = args.output + first_row * args.value_width;
  const int64_t keys = columns.end - columns.begin;
  int64_t c = 0;
  // Half the rows and twice as wide where there are registers for it: fewer
  // loads to a product, and values are read line after line.
  if constexpr (kGroupRows > 8 && kRows % 2 == 0) {
    constexpr int kHalf = kRows / 2;
    for (; c + 4 * lanes <= args.value_width; c += 4 * lanes) {
      for (int r = 0; r < kRows; r += kHalf) {
        AddValues<kHalf, 4>(
            p + r * kScoreStride, keys, values + c, args.value_stride,
            factors + r, output + r * args.value_width + c, args.value_width);
      }
    }
  }
  for (; c + 2 * lanes <= args.value_width; c += 2 * lanes) {
    AddValues<kRows, 2>(p, keys, values + c, args.value_stride, factors,
                        output + c, args.value_width);
  }
  if (c < args.value_width) {
    AddValues<kRows, 1>(p, keys, values + c, args.value_stride, factors,
                        output + c, args.value_width);
  }
}

template <int kRows>
HWY_INLINE void FinishGroup(const TileArgs& args, int64_t first_row,
                            const Columns& columns) {
  for (int r = 0; r < kRows; ++r) {
    FinishScores(args, first_row + r, columns, args.scores + r * kScoreStride);
  }
}

// What a panel of a group of rows brings closer, of all that comes next: lines
// of 64 bytes, spread evenly over the tile's panels.
HWY_INLINE ComingBytes ShareOfComing(const TileArgs& args, int64_t first_row,
                                     int rows, int64_t panel) {
  const int64_t width = 2 * static_cast<int64_t>(hn::Lanes(F()));
  const int64_t panels = (args.keys + width - 1) / width;
  const int64_t begin = (first_row * panels + panel * rows) *
                        args.coming_lines / (args.rows * panels);
  const int64_t end = (first_row * panels + (panel + 1) * rows) *
                      args.coming_lines / (args.rows * panels);
  int64_t before = 0;
  for (const ComingBytes& coming : args.coming) {
    const int64_t lines = (coming.count + kLine - 1) / kLine;
    if (begin < before + lines) {
      return {coming.data + (begin - before) * kLine,
              HWY_MIN(end - begin, before + lines - begin)};
    }
    before += lines;
  }
  return {nullptr, 0};
}

template <int kRows>
HWY_INLINE void ScoreGroup(const TileArgs& args, int64_t first_row,
                           const Columns& columns) {
  const int64_t panel = 2 * static_cast<int64_t>(hn::Lanes(F()));
  for (int64_t c = columns.first; c < columns.end; c += panel) {
    ScorePanel<kRows>(args, first_row, c,
                      ShareOfComing(args, first_row, kRows, c / panel),
                      args.scores + c);
  }
  FinishGroup<kRows>(args, first_row, columns);
}

// Weights relative to the rows' maxima so far, which need not be exceeded by
// little to serve: no look for the maximum comes between scores and weights.
// False, and nothing done to the rows' states, where a row has no maximum yet
// or its weights grow too large; the scores are then gone.
template <int kRows>
HWY_INLINE bool WeightsAtOnce(const TileArgs& args, int64_t first_row,
                              const Columns& columns) {
  constexpr float kLargestSum = 16777216.0F;
  const float* const tops = args.max + first_row;
  for (int r = 0; r < kRows; ++r) {
    if (tops[r] == -__builtin_inff()) return false;
  }
  ScoreGroup<kRows>(args, first_row, columns);
  VF vectors[kRows];
  float sums[kRows];
  for (int r = 0; r < kRows; ++r) {
    vectors[r] =
        WeightsOfRow<true>(columns, tops[r], args.scores + r * kScoreStride);
  }
  ReduceLanes<kRows>(vectors, AddOp(), sums);
  for (int r = 0; r < kRows; ++r) {
    if (!(sums[r] <= kLargestSum)) return false;  // nor where it is NaN
  }
  for (int r = 0; r < kRows; ++r) args.sum[first_row + r] += sums[r];
  return true;
}

struct AttendGroup {
  const TileArgs& args;

  template <int kRows>
  HWY_NOINLINE void Group(int64_t first_row) const {
    const Columns columns = ColumnsOfGroup(args, first_row, kRows);
    if (columns.end == 0) {
      if (args.kept != nullptr) Keep<kRows>(first_row, columns);
      return;
    }
    float factors[kRows];
    if (WeightsAtOnce<kRows>(args, first_row, columns)) {
      for (float& factor : factors) factor = 1.0F;
    } else {
      ScoreGroup<kRows>(args, first_row, columns);
      SoftmaxGroup<kRows>(args, first_row, columns, factors);
    }
    if (args.kept != nullptr && !args.keep_after_dropout) {
      Keep<kRows>(first_row, columns);
    }
    if (args.dropout != nullptr) {
      for (int r = 0; r < kRows; ++r) {
        DropRow(args, first_row + r, columns, args.scores + r * kScoreStride);
      }
    }
    if (args.kept != nullptr && args.keep_after_dropout) {
      Keep<kRows>(first_row, columns);
    }
    SecondProduct<kRows>(args, first_row, columns, factors);
  }

  // Copies the group's weights to where they wait for their normalisation.
  template <int kRows>
  HWY_INLINE void Keep(int64_t first_row, const Columns& columns) const {
    const F d;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    for (int r = 0; r < kRows; ++r) {
      const float* from = args.scores + r * kScoreStride;
      float* to = args.kept + (first_row + r) * args.kept_stride;
      args.tile_max[first_row + r] = args.max[first_row + r];
      for (int64_t c = 0; c < args.keys; c += lanes) {
        const bool computed = c >= columns.first && c < columns.last;
        hn::StoreU(computed ? hn::LoadU(d, from + c) : hn::Zero(d), d, to + c);
      }
    }
  }
};

void AttendTile(const TileArgs& args) {
  ForEachGroup(args.rows, AttendGroup{args});
}

struct WeightGroup {
  const TileArgs& args;
  const WeightArgs& out;

  template <int kRows>
  HWY_NOINLINE void Group(int64_t first_row) const {
    const F d;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    const Columns columns = ColumnsOfGroup(args, first_row, kRows);
    if (columns.end == 0) return;
    ScoreGroup<kRows>(args, first_row, columns);
    for (int r = 0; r < kRows; ++r) {
      const int64_t row = first_row + r;
      float* scores = args.scores + r * kScoreStride;
      if (args.max[row] == -__builtin_inff()) continue;
      const VF max = hn::Set(d, args.max[row]);
      const VF inverse = hn::Set(d, out.inverse_sum[row]);
      for (int64_t c = columns.first; c < columns.last; c += lanes) {
        const VF p = Exp2(hn::Sub(hn::LoadU(d, scores + c), max));
        hn::StoreU(hn::Mul(p, inverse), d, scores + c);
      }
      if (out.after_dropout) DropRow(args, row, columns, scores);
      memcpy(
          out.weights[row] + args.begin[row], scores + args.begin[row],
          static_cast<size_t>(args.end[row] - args.begin[row]) * sizeof(float));
    }
  }
};

void StoreWeights(const TileArgs& args, const WeightArgs& weights) {
  ForEachGroup(args.rows, WeightGroup{args, weights});
}

}  // namespace attention::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
// NOLINTEND(misc-definitions-in-headers)

#endif  // include guard
