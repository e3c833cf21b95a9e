// A block of rows against a tile of keys, micro-tile by micro-tile: QK,
// epilogue, softmax, PV. Included once per instruction set.
#if defined(ATTENTION_CORE_CPU_KERNELS_TILE_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef ATTENTION_CORE_CPU_KERNELS_TILE_INL_H_
#undef ATTENTION_CORE_CPU_KERNELS_TILE_INL_H_
#else
#define ATTENTION_CORE_CPU_KERNELS_TILE_INL_H_
#endif

#include <cstring>

#include "core/cpu/kernels/epilogue-inl.h"
#include "core/cpu/kernels/math-inl.h"
#include "core/cpu/kernels/pack-inl.h"
#include "core/cpu/kernels/pv-inl.h"
#include "core/cpu/kernels/qk-inl.h"
#include "core/cpu/kernels/softmax-inl.h"
#include "hwy/highway.h"

// Compiled once per instruction set, into a namespace of its own each time.
// NOLINTBEGIN(misc-definitions-in-headers)
HWY_BEFORE_NAMESPACE();
namespace attention::cpu::HWY_NAMESPACE {

// What QK of a panel brings closer, of all that comes next: lines
// of 64 bytes, spread evenly over the tile's panels.
HWY_INLINE PrefetchRange ShareOfPrefetch(const TileArgs& args,
                                         int64_t first_row, int rows,
                                         int64_t panel) {
  const int64_t width = 2 * static_cast<int64_t>(hn::Lanes(F()));
  const int64_t panels = (args.keys + width - 1) / width;
  const int64_t begin = (first_row * panels + panel * rows) *
                        args.prefetch_lines / (args.rows * panels);
  const int64_t end = (first_row * panels + (panel + 1) * rows) *
                      args.prefetch_lines / (args.rows * panels);
  int64_t before = 0;
  for (const PrefetchRange& range : args.prefetch) {
    const int64_t lines = (range.bytes + kLine - 1) / kLine;
    if (begin < before + lines) {
      return {range.data + (begin - before) * kLine,
              HWY_MIN(end - begin, before + lines - begin)};
    }
    before += lines;
  }
  return {nullptr, 0};
}

// The scores of a micro-tile, masks and all, in args.scores.
template <int kRows>
HWY_INLINE void ScoreRows(const TileArgs& args, int64_t first_row,
                          const Columns& columns) {
  const int64_t panel = 2 * static_cast<int64_t>(hn::Lanes(F()));
  for (int64_t c = columns.first; c < columns.end; c += panel) {
    ScorePanel<kRows>(args, first_row, c, columns.end - c,
                      ShareOfPrefetch(args, first_row, kRows, c / panel),
                      args.scores + c);
    if (args.partial != nullptr) {
      AddScores<kRows>(args.partial + first_row * kScoreStride + c, panel,
                       args.scores + c);
    }
  }
  FinishScoresOfRows<kRows>(args, first_row, columns);
}

HWY_INLINE void KeepWeights(const TileArgs& args, int64_t first_row,
                            int64_t rows, const Columns& columns,
                            const float* weights) {
  args.keep_weights(args.keep_context, {.first_row = first_row,
                                        .rows = rows,
                                        .begin = columns.first,
                                        .end = HWY_MIN(columns.last, args.keys),
                                        .weights = weights});
}

struct AttendMicroRows {
  const TileArgs& args;

  template <int kRows>
  HWY_NOINLINE void Rows(int64_t first_row) const {
    const Columns columns = ColumnsOfRows(args, first_row, kRows);
    const bool keeps = args.keep_weights != nullptr;
    if (columns.end == 0) {
      if (keeps) KeepWeights(args, first_row, kRows, columns, args.scores);
      return;
    }
    float factors[kRows];
    ScoreRows<kRows>(args, first_row, columns);
    float* const weights =
        WeightsOfRows<kRows>(args, first_row, columns, factors);
    if (keeps && !args.keep_after_dropout) {
      KeepWeights(args, first_row, kRows, columns, weights);
    }
    if (args.dropout != nullptr) {
      for (int r = 0; r < kRows; ++r) {
        DropRow(args, first_row + r, columns, weights + r * kScoreStride);
      }
    }
    if (keeps && args.keep_after_dropout) {
      KeepWeights(args, first_row, kRows, columns, weights);
    }
    AddWeightedValues<kRows>(args, first_row, columns, weights, factors);
  }
};

void AttendTile(const TileArgs& args) {
  ForEachMicroTile(args.rows, AttendMicroRows{args});
}

struct WeightMicroRows {
  const TileArgs& args;
  const WeightArgs& out;

  template <int kRows>
  HWY_NOINLINE void Rows(int64_t first_row) const {
    const Columns columns = ColumnsOfRows(args, first_row, kRows);
    if (columns.end == 0) return;
    ScoreRows<kRows>(args, first_row, columns);
    for (int r = 0; r < kRows; ++r) {
      StoreRow(first_row + r, columns, args.scores + r * kScoreStride);
    }
  }

  HWY_INLINE void StoreRow(int64_t row, const Columns& columns,
                           float* scores) const {
    const F d;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    if (out.weights[row] == nullptr || args.begin[row] >= args.end[row]) return;
    const VF max =
        hn::Set(d, args.max[row] == -__builtin_inff() ? 0.0F : args.max[row]);
    const VF inverse = hn::Set(d, out.inverse_sum[row]);
    for (int64_t c = columns.first; c < columns.last; c += lanes) {
      const VF score = hn::LoadU(d, scores + c);
      // Exactly 0 for a key that takes no part, in a row that is NaN, too.
      hn::StoreU(
          hn::IfThenZeroElse(hn::Eq(score, MinusInfinity()),
                             hn::Mul(Exp2(hn::Sub(score, max)), inverse)),
          d, scores + c);
    }
    if (out.after_dropout) DropRow(args, row, columns, scores);
    const int64_t begin = args.begin[row];
    memcpy(out.weights[row] + begin, scores + begin,
           static_cast<size_t>(args.end[row] - begin) * sizeof(float));
  }
};

void StoreWeights(const TileArgs& args, const WeightArgs& weights) {
  ForEachMicroTile(args.rows, WeightMicroRows{args, weights});
}

}  // namespace attention::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
// NOLINTEND(misc-definitions-in-headers)

#endif  // include guard
