// QK and PV of every kind of operands, a class for each (Operands in
// tile_args.h). Included once per instruction set.
#if defined(ATTENTION_CORE_CPU_KERNELS_OPERANDS_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef ATTENTION_CORE_CPU_KERNELS_OPERANDS_INL_H_
#undef ATTENTION_CORE_CPU_KERNELS_OPERANDS_INL_H_
#else
#define ATTENTION_CORE_CPU_KERNELS_OPERANDS_INL_H_
#endif

#include "core/cpu/kernels/bf16/in_place_tiles-inl.h"
#include "core/cpu/kernels/bf16/int8_tiles-inl.h"
#include "core/cpu/kernels/bf16/tiles-inl.h"
#include "core/cpu/kernels/in_place-inl.h"
#include "core/cpu/kernels/pv-inl.h"
#include "core/cpu/kernels/qk-inl.h"
#include "core/cpu/kernels/softmax-inl.h"
#include "core/cpu/kernels/tile_args.h"
#include "hwy/highway.h"

// Compiled once per instruction set, into a namespace of its own each time.
// NOLINTBEGIN(misc-definitions-in-headers)
HWY_BEFORE_NAMESPACE();
namespace attention::cpu::HWY_NAMESPACE {

// The classes have the same functions: ForEachRows() cuts rows into
// micro-tiles; RowsOf() says how many one has; ColumnsOf() which columns it
// computes; Score() is QK; Softmax() has the weights go where AddValues(), PV,
// reads them, and returns them as floats where `floats` asks for them;
// Changed() is told of floats that have changed since. AddValues() may change
// them, being the last to see them. AddNonFinite() adds the values that
// AddValues() leaves out, as the scores say.

struct PackedProducts {
  const TileArgs& args;

  template <class Visit>
  static HWY_INLINE void ForEachRows(const TileArgs& args, const Visit& visit) {
    ForEachMicroTile(args.rows, visit);
  }
  template <int kRows>
  static HWY_INLINE int64_t RowsOf(const TileArgs& /*args*/, int64_t /*row*/) {
    return kRows;
  }
  HWY_INLINE Columns ColumnsOf(int64_t first_row, int64_t rows) const {
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(F()));
    return ColumnsOfRows(args.epilogue, first_row, rows, 2 * lanes, lanes);
  }
  template <int kRows>
  HWY_INLINE void Score(int64_t first_row, int64_t /*rows*/,
                        const Columns& columns) const {
    ScorePackedRows<kRows>(args, first_row, columns);
  }
  // In the scores' place where a micro-tile is fresh: they will hardly be
  // looked at again, and the first-level cache has no room for both.
  HWY_INLINE float* Softmax(int64_t first_row, int64_t rows,
                            const Columns& columns, bool /*floats*/,
                            float* factors) const {
    const bool fresh = AnyRowIsFresh(args.states, first_row, rows);
    float* const weights =
        fresh && !*args.met_non_finite ? args.scores : args.unnormalised;
    SoftmaxOfRows(
        args, first_row, rows, columns, fresh,
        [weights](int64_t row)
            HWY_ATTR { return FloatWeights{weights + row * kScoreStride}; },
        factors);
    return weights;
  }
  HWY_INLINE void Changed(const Columns& /*columns*/, int64_t /*row*/,
                          const float* /*weights*/) const {}
  template <int kRows>
  HWY_INLINE void AddValues(int64_t first_row, int64_t /*rows*/,
                            const Columns& columns, const float* weights,
                            const float* factors) const {
    AddPackedValues<kRows>(args, first_row, columns, weights, factors);
  }
  HWY_INLINE void AddNonFinite(int64_t first_row, int64_t rows,
                               const Columns& columns) const {
    AddNonFiniteValues(args, first_row, rows, columns,
                       [this](int64_t j, int64_t column) HWY_ATTR {
                         return hn::LoadU(F(), args.packed.values[j] + column);
                       });
  }
};

template <Element kType>
struct InPlaceProducts : PackedProducts {
  template <class Visit>
  static HWY_INLINE void ForEachRows(const TileArgs& args, const Visit& visit) {
    ForEachDecodeRows(args.rows, visit);
  }
  template <int kRows>
  HWY_INLINE void Score(int64_t first_row, int64_t /*rows*/,
                        const Columns& columns) const {
    ScoreInPlace<kRows, kType>(args.in_place, first_row, columns, args.scores);
  }
  template <int kRows>
  HWY_INLINE void AddValues(int64_t first_row, int64_t /*rows*/,
                            const Columns& columns, float* weights,
                            const float* factors) const {
    AddValuesInPlace<kRows, kType>(args, first_row, columns, weights, factors);
  }
  HWY_INLINE void AddNonFinite(int64_t first_row, int64_t rows,
                               const Columns& columns) const {
    AddNonFiniteInPlace<kType>(args, first_row, rows, columns);
  }
};

struct PairedProducts {
  const TileArgs& args;

  template <class Visit>
  static HWY_INLINE void ForEachRows(const TileArgs& args, const Visit& visit) {
    args.bf16.products->begin();
    for (int64_t r = 0; r < args.rows; r += kMaxMicroRows) {
      visit.template Rows<static_cast<int>(kMaxMicroRows)>(r);
    }
    args.bf16.products->end();
  }
  template <int kRows>
  static HWY_INLINE int64_t RowsOf(const TileArgs& args, int64_t row) {
    return HWY_MIN(kRows, args.rows - row);
  }
  HWY_INLINE Columns ColumnsOf(int64_t first_row, int64_t rows) const {
    return ColumnsOfRows(args.epilogue, first_row, rows, kBf16Panel,
                         kBf16Panel);
  }
  template <int kRows>
  HWY_INLINE void Score(int64_t first_row, int64_t rows,
                        const Columns& columns) const {
    ScoreBf16Rows(args, first_row, rows, columns);
  }
  HWY_INLINE float* Softmax(int64_t first_row, int64_t rows,
                            const Columns& columns, bool floats,
                            float* factors) const {
    float* const weights = floats ? args.unnormalised : nullptr;
    SoftmaxOfRows(
        args, first_row, rows, columns,
        AnyRowIsFresh(args.states, first_row, rows),
        [this, &columns, weights](int64_t row)
            HWY_ATTR { return PairedWeightsOf(args, columns, row, weights); },
        factors);
    return weights;
  }
  HWY_INLINE void Changed(const Columns& columns, int64_t row,
                          const float* weights) const {
    PairAgain(args, columns, row, weights);
  }
  template <int kRows>
  HWY_INLINE void AddValues(int64_t first_row, int64_t rows,
                            const Columns& columns, const float* /*weights*/,
                            const float* factors) const {
    AddBf16Values(args, first_row, rows, columns, factors);
  }
  HWY_INLINE void AddNonFinite(int64_t first_row, int64_t rows,
                               const Columns& columns) const {
    AddNonFiniteBf16(args, first_row, rows, columns);
  }
};

struct PairedInPlaceProducts : PairedProducts {
  template <int kRows>
  HWY_INLINE void Score(int64_t first_row, int64_t rows,
                        const Columns& columns) const {
    ScoreBf16InPlace(args, first_row, rows, columns);
  }
  template <int kRows>
  HWY_INLINE void AddValues(int64_t first_row, int64_t rows,
                            const Columns& columns, const float* /*weights*/,
                            const float* factors) const {
    AddBf16ValuesInPlace(args, first_row, rows, columns, factors);
  }
  HWY_INLINE void AddNonFinite(int64_t first_row, int64_t rows,
                               const Columns& columns) const {
    switch (args.in_place.type) {
      case Element::kInt8:
        return AddNonFiniteInPlace<Element::kInt8>(args, first_row, rows,
                                                   columns);
      case Element::kFloat8:
        return AddNonFiniteInPlace<Element::kFloat8>(args, first_row, rows,
                                                     columns);
      default:
        return AddNonFiniteInPlace<Element::kBFloat16>(args, first_row, rows,
                                                       columns);
    }
  }
};

struct Int8InPlaceProducts : PairedInPlaceProducts {
  template <int kRows>
  HWY_INLINE void Score(int64_t first_row, int64_t rows,
                        const Columns& columns) const {
    ScoreInt8InPlace(args, first_row, rows, columns);
  }
  HWY_INLINE float* Softmax(int64_t first_row, int64_t rows,
                            const Columns& columns, bool floats,
                            float* factors) const {
    return PackedProducts{args}.Softmax(first_row, rows, columns, floats,
                                        factors);
  }
  HWY_INLINE void Changed(const Columns& /*columns*/, int64_t /*row*/,
                          const float* /*weights*/) const {}
  template <int kRows>
  HWY_INLINE void AddValues(int64_t first_row, int64_t rows,
                            const Columns& columns, float* weights,
                            const float* factors) const {
    AddInt8ValuesInPlace(args, first_row, rows, columns, weights, factors);
  }
};

}  // namespace attention::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
// NOLINTEND(misc-definitions-in-headers)

#endif  // include guard
