// A block of rows against a tile of keys, some rows at a time: QK, epilogue,
// softmax, PV. What computes QK and PV is a class (operands-inl.h); all else is
// here once.
// Included once per instruction set.
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
#include "core/cpu/kernels/operands-inl.h"
#include "core/cpu/kernels/softmax-inl.h"
#include "core/cpu/kernels/tile_args.h"
#include "hwy/highway.h"

// Compiled once per instruction set, into a namespace of its own each time.
// NOLINTBEGIN(misc-definitions-in-headers)
HWY_BEFORE_NAMESPACE();
namespace attention::cpu::HWY_NAMESPACE {

template <int kRows, class Products>
struct MicroTile {
  const Products products;
  const int64_t first_row;
  const int64_t rows;
  const Columns columns;

  HWY_INLINE MicroTile(const TileArgs& args, int64_t first)
      : products{args},
        first_row(first),
        rows(Products::template RowsOf<kRows>(args, first)),
        columns(products.ColumnsOf(first_row, rows)) {}

  // Final scores, in args.scores; false where its rows attend none of the
  // tile's keys.
  HWY_INLINE bool Score() const {
    if (columns.end == 0) return false;
    products.template Score<kRows>(first_row, rows, columns);
    FinishScoresOfRows(products.args, first_row, rows, columns);
    return true;
  }
};

HWY_INLINE void KeepWeights(const TileArgs& args, int64_t first_row,
                            int64_t rows, const Columns& columns,
                            const float* weights) {
  args.weights.keep(args.weights.context,
                    {.first_row = first_row,
                     .rows = rows,
                     .begin = columns.first,
                     .end = HWY_MIN(columns.last, args.keys),
                     .weights = weights});
}

// Adds a tile of keys to its rows' softmax states and weighted values.
template <class Products>
struct Attend {
  const TileArgs& args;

  template <int kRows>
  HWY_NOINLINE void Rows(int64_t first_row) const {
    const MicroTile<kRows, Products> tile(args, first_row);
    const Products& products = tile.products;
    const int64_t rows = tile.rows;
    const Columns& columns = tile.columns;
    const WeightSink& sink = args.weights;
    if (!tile.Score()) {
      if (sink.keep == nullptr) return;
      return KeepWeights(args, first_row, rows, columns, args.scores);
    }
    const bool drops = args.dropout.fill != nullptr;
    float factors[kRows];
    float* const weights = products.Softmax(
        first_row, rows, columns, drops || sink.keep != nullptr, factors);
    if (sink.keep != nullptr && !sink.after_dropout) {
      KeepWeights(args, first_row, rows, columns, weights);
    }
    for (int64_t r = 0; drops && r < rows; ++r) {
      DropRow(args, first_row + r, columns, weights + r * kScoreStride);
      products.Changed(columns, r, weights + r * kScoreStride);
    }
    if (sink.keep != nullptr && sink.after_dropout) {
      KeepWeights(args, first_row, rows, columns, weights);
    }
    products.template AddValues<kRows>(first_row, rows, columns, weights,
                                       factors);
    if (HWY_UNLIKELY(*args.met_non_finite)) {
      AddNonFinite(tile, weights == args.scores);
    }
  }

  // A value that is not finite reaches the rows in which its key takes part,
  // however small its weight, unless dropout took it. `overwritten`: weights
  // have taken the scores' place.
  template <int kRows>
  HWY_NOINLINE void AddNonFinite(const MicroTile<kRows, Products>& tile,
                                 bool overwritten) const {
    const Columns& columns = tile.columns;
    if (overwritten) tile.Score();
    for (int64_t r = 0; args.dropout.fill != nullptr && r < tile.rows; ++r) {
      const float* const kept = DropoutOfRow(args, tile.first_row + r, columns);
      float* const scores = args.scores + r * kScoreStride;
      for (int64_t j = columns.begin; j < columns.end; ++j) {
        if (kept[j] == 0.0F) scores[j] = -__builtin_inff();
      }
    }
    tile.products.AddNonFinite(tile.first_row, tile.rows, columns);
  }
};

// The second sweep for weights.
template <class Products>
struct Weights {
  const TileArgs& args;
  const WeightArgs& out;

  template <int kRows>
  HWY_NOINLINE void Rows(int64_t first_row) const {
    const MicroTile<kRows, Products> tile(args, first_row);
    if (!tile.Score()) return;
    for (int64_t r = 0; r < tile.rows; ++r) {
      Store(first_row + r, tile.columns, args.scores + r * kScoreStride,
            args.unnormalised + r * kScoreStride);
    }
  }

  HWY_INLINE void Store(int64_t row, const Columns& columns,
                        const float* scores, float* weights) const {
    const F d;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    const int64_t begin = args.epilogue.begin[row];
    const int64_t end = args.epilogue.end[row];
    if (out.rows[row] == 0 || begin >= end) return;
    const float max = args.states.max[row];
    const Exponents<true> exponents = {
        hn::Set(d, max == -__builtin_inff() ? 0.0F : max),
        hn::Set(d, args.states.exponent)};
    const VF inverse = hn::Set(d, out.inverse_sum[row]);
    for (int64_t c = columns.first; c < columns.last; c += lanes) {
      // Exactly 0 for a key that takes no part, in a row that is NaN, too.
      const auto absent = hn::Eq(hn::LoadU(d, scores + c), MinusInfinity());
      const VF weight = hn::Mul(Exp2(exponents.Of(scores + c)), inverse);
      hn::StoreU(hn::IfThenZeroElse(absent, weight), d, weights + c);
    }
    if (out.take != nullptr) {
      out.take(out.context, {row, begin, end, scores, weights});
    }
    if (out.weights[row] == nullptr) return;
    if (out.after_dropout && args.dropout.fill != nullptr) {
      DropRow(args, row, columns, weights);
    }
    memcpy(out.weights[row] + begin, weights + begin,
           static_cast<size_t>(end - begin) * sizeof(float));
  }
};

// A sweep for scores alone.
template <class Products>
struct Scores {
  const TileArgs& args;
  const ScoreArgs& out;

  template <int kRows>
  HWY_NOINLINE void Rows(int64_t first_row) const {
    const MicroTile<kRows, Products> tile(args, first_row);
    if (!tile.Score()) return;
    for (int64_t r = 0; r < tile.rows; ++r) {
      const int64_t row = first_row + r;
      const float* const scores = args.scores + r * kScoreStride;
      const int64_t begin = args.epilogue.begin[row];
      const int64_t end = args.epilogue.end[row];
      if (begin >= end) continue;
      memcpy(out.scores[row] + begin, scores + begin,
             static_cast<size_t>(end - begin) * sizeof(float));
    }
  }
};

// Does `Work` with the products of a tile's operands.
template <template <class> class Work, class... Args>
HWY_INLINE void WithProducts(const TileArgs& args, const Args&... more) {
  switch (args.operands) {
    case Operands::kPacked:
      return PackedProducts::ForEachRows(args,
                                         Work<PackedProducts>{args, more...});
    case Operands::kBf16:
      return PairedProducts::ForEachRows(args,
                                         Work<PairedProducts>{args, more...});
    case Operands::kBf16InPlace:
      return PairedInPlaceProducts::ForEachRows(
          args, Work<PairedInPlaceProducts>{args, more...});
    case Operands::kInt8InPlace:
      return Int8InPlaceProducts::ForEachRows(
          args, Work<Int8InPlaceProducts>{args, more...});
    case Operands::kInPlace:
      break;
  }
  switch (args.in_place.type) {
    case Element::kFloat32:
      return InPlaceProducts<Element::kFloat32>::ForEachRows(
          args, Work<InPlaceProducts<Element::kFloat32>>{args, more...});
    case Element::kFloat16:
      return InPlaceProducts<Element::kFloat16>::ForEachRows(
          args, Work<InPlaceProducts<Element::kFloat16>>{args, more...});
    case Element::kBFloat16:
      return InPlaceProducts<Element::kBFloat16>::ForEachRows(
          args, Work<InPlaceProducts<Element::kBFloat16>>{args, more...});
    case Element::kInt8:
      return InPlaceProducts<Element::kInt8>::ForEachRows(
          args, Work<InPlaceProducts<Element::kInt8>>{args, more...});
    case Element::kFloat8:
      return InPlaceProducts<Element::kFloat8>::ForEachRows(
          args, Work<InPlaceProducts<Element::kFloat8>>{args, more...});
  }
}

inline void AttendTile(const TileArgs& args) { WithProducts<Attend>(args); }

inline void StoreWeights(const TileArgs& args, const WeightArgs& weights) {
  WithProducts<Weights>(args, weights);
}

inline void StoreScores(const TileArgs& args, const ScoreArgs& scores) {
  WithProducts<Scores>(args, scores);
}

}  // namespace attention::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
// NOLINTEND(misc-definitions-in-headers)

#endif  // include guard
