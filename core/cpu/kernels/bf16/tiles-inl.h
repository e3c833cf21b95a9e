// QK and PV with products of BF16: the operands, and what brings weights to
// them. What stands between QK and PV is in FP32, and that of all products
// (tile-inl.h). Included once per instruction set.
#if defined(ATTENTION_CORE_CPU_KERNELS_BF16_TILES_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef ATTENTION_CORE_CPU_KERNELS_BF16_TILES_INL_H_
#undef ATTENTION_CORE_CPU_KERNELS_BF16_TILES_INL_H_
#else
#define ATTENTION_CORE_CPU_KERNELS_BF16_TILES_INL_H_
#endif

#include <cstring>

#include "core/cpu/kernels/bf16/products.h"
#include "core/cpu/kernels/convert-inl.h"
#include "core/cpu/kernels/epilogue-inl.h"
#include "core/cpu/kernels/math-inl.h"
#include "core/cpu/kernels/pack-inl.h"
#include "core/cpu/kernels/prefetch-inl.h"
#include "core/cpu/kernels/pv-inl.h"
#include "core/cpu/kernels/softmax-inl.h"
#include "core/cpu/kernels/tile_args.h"
#include "hwy/highway.h"

// Compiled once per instruction set, into a namespace of its own each time:
// also for those that have no such products, where an emulation of them is
// tested. NOLINTBEGIN(misc-definitions-in-headers)
HWY_BEFORE_NAMESPACE();
namespace attention::cpu::HWY_NAMESPACE {

// As many elements as there are floats in two vectors.
using Pairs = hn::CappedTag<uint16_t, 2 * hn::MaxLanes(F())>;
inline constexpr int64_t kPairsLanes =
    static_cast<int64_t>(hn::MaxLanes(Pairs()));
static_assert(kBf16Panel % kPairsLanes == 0);

// The terms of numbers of FP16, in the upper halves of floats. Both have the
// sign of their sum, and neither is 0 unless it is: of a product's four parts,
// none is an infinity or NaN that the product is not. Infinity is the largest
// number and infinity. Terms of others are normal numbers, from 2^-32 on.
struct Terms {
  VF first;
  VF second;
};

HWY_INLINE Terms TermsOf(VF x) {
  const F d;
  const hn::RebindToUnsigned<F> du;
  // What lies below x in magnitude, cut to 8 bits: at least the last of them
  // is left, of which FP16's 11 bits have room for more than enough.
  const auto below = hn::Sub(hn::BitCast(du, x), hn::Set(du, 1));
  const VF cut = hn::BitCast(d, hn::And(below, hn::Set(du, 0xFFFF0000U)));
  const VF first = hn::IfThenElse(hn::Eq(x, hn::Zero(d)), x, cut);
  return {first, hn::Sub(x, first)};
}

// Two vectors of elements, as they are or as terms; the second terms lie
// `to_second` elements behind the first.
template <int kTerms>
HWY_INLINE void StorePairs(hn::VFromD<Pairs> elements, uint16_t* to,
                           int64_t to_second) {
  const Pairs d;
  if constexpr (kTerms == 1) {
    static_cast<void>(to_second);
    hn::Store(elements, d, to);
  } else {
    const Halves half;
    const auto store = [](VF term, uint16_t* place) HWY_ATTR {
      const auto bits = hn::BitCast(hn::RebindToUnsigned<F>(), term);
      hn::Store(hn::TruncateTo(Halves(), hn::ShiftRight<16>(bits)), Halves(),
                place);
    };
    const Terms low = TermsOf(WidenHalves(hn::LowerHalf(half, elements)));
    const Terms high = TermsOf(WidenHalves(hn::UpperHalf(half, elements)));
    store(low.first, to);
    store(high.first, to + hn::Lanes(half));
    store(low.second, to + to_second);
    store(high.second, to + to_second + hn::Lanes(half));
  }
}

// Rows of BF16 as they are, or of FP16 in two terms.
template <int kTerms>
inline void CopyRowsIntoTerms(const RowSource& from, int64_t rows,
                              int64_t padded_rows, int64_t width, float* to,
                              int64_t to_stride) {
  const Pairs d;
  const hn::Repartition<uint8_t, Pairs> bytes;
  const bool dense = from.column_stride == 2;
  const int64_t padded = 2 * to_stride / kTerms;  // elements of a term
  HWY_ALIGN uint16_t piece[kPairsLanes];
  for (int64_t r = 0; r < rows; ++r) {
    const unsigned char* row = from.data + r * from.row_stride;
    auto* out = reinterpret_cast<uint16_t*>(to + r * to_stride);
    int64_t i = 0;
    for (; dense && i + kPairsLanes <= width; i += kPairsLanes) {
      StorePairs<kTerms>(hn::BitCast(d, hn::LoadU(bytes, row + 2 * i)), out + i,
                         padded);
    }
    for (; i < padded; i += kPairsLanes) {
      hn::Store(hn::Zero(d), d, piece);
      const int64_t count = HWY_MIN(kPairsLanes, width - i);
      for (int64_t k = 0; k < count; ++k) {
        memcpy(piece + k, row + (i + k) * from.column_stride, 2);
      }
      StorePairs<kTerms>(hn::Load(d, piece), out + i, padded);
    }
  }
  for (int64_t i = rows * to_stride; i < padded_rows * to_stride; ++i) {
    to[i] = 0.0F;
  }
}

inline void PackBf16Keys(const float* rows, int64_t stride, int64_t count,
                         int64_t width, float* packed) {
  PackPanelsOf(kBf16Panel, rows, stride, count, width, packed);  // like floats
}

// Elements of a row of values from column `c` on, as many as D has lanes; 0
// from `width` on, and where there is no row.
template <class D>
HWY_INLINE hn::Vec<D> ValuesFrom(D d, const unsigned char* row, int64_t c,
                                 int64_t width) {
  constexpr auto kLanes = static_cast<int64_t>(hn::MaxLanes(D()));
  const hn::Repartition<uint8_t, D> bytes;
  if (row == nullptr || c >= width) return hn::Zero(d);
  if (HWY_LIKELY(c + kLanes <= width)) {
    return hn::BitCast(d, hn::LoadU(bytes, row + 2 * c));
  }
  HWY_ALIGN uint16_t piece[kLanes] = {};
  memcpy(piece, row + 2 * c, static_cast<size_t>(width - c) * 2);
  return hn::Load(d, piece);
}

// Quarters of blocks in the order in which InterleaveLower() and
// InterleaveUpper(), block by block, leave whole vectors in order.
HWY_INLINE hn::Vec<Pairs> ForInterleaving(hn::Vec<Pairs> v) {
  const hn::Repartition<uint64_t, Pairs> d;
  constexpr size_t kQuarters = hn::MaxLanes(decltype(d)());
  if constexpr (kQuarters == 2) {
    return v;
  } else {
    HWY_ALIGN static constexpr int64_t kFour[] = {0, 2, 1, 3};
    HWY_ALIGN static constexpr int64_t kEight[] = {0, 4, 1, 5, 2, 6, 3, 7};
    const int64_t* const order = kQuarters == 4 ? kFour : kEight;
    return hn::BitCast(
        Pairs(),
        hn::TableLookupLanes(hn::BitCast(d, v), hn::SetTableIndices(d, order)));
  }
}

// A panel of keys: pairs of key i and key 16 + i. False where a value is not
// finite; kZeroes: and 0 takes its place.
template <bool kZeroes>
HWY_INLINE bool PackPanelOfBf16(const unsigned char* const* rows, int64_t width,
                                int64_t panels, float* packed) {
  const Pairs d;
  const auto magnitude = hn::Set(d, uint16_t{0x7FFF});
  const auto infinity = hn::Set(d, uint16_t{0x7F80});
  auto most = hn::Zero(d);
  const auto load = [&](int64_t row, int64_t c) HWY_ATTR {
    const auto v = ValuesFrom(d, rows[row], c, width);
    const auto magnitudes = hn::And(v, magnitude);
    most = hn::Max(most, magnitudes);
    if constexpr (!kZeroes) return v;
    return hn::IfThenElseZero(hn::Lt(magnitudes, infinity), v);
  };
  for (int64_t c = 0; c < panels * kBf16Panel; c += kBf16Panel) {
    for (int64_t i = 0; i < kBf16Depth; ++i) {
      for (int64_t n = 0; n < kBf16Panel; n += kPairsLanes) {
        const auto low = ForInterleaving(load(i, c + n));
        const auto high = ForInterleaving(load(i + kBf16Depth, c + n));
        hn::Store(hn::BitCast(F(), hn::InterleaveLower(d, low, high)), F(),
                  packed);
        hn::Store(hn::BitCast(F(), hn::InterleaveUpper(d, low, high)), F(),
                  packed + kPairsLanes / 2);
        packed += kPairsLanes;
      }
    }
  }
  return hn::AllTrue(d, hn::Lt(most, infinity));
}

using Bits = hn::VFromD<hn::RebindToUnsigned<F>>;

// The terms of elements of FP16. What is not finite is noted in `bad`; 0 takes
// its place.
HWY_INLINE Terms FiniteTerms(const unsigned char* row, int64_t c, int64_t width,
                             Bits& bad) {
  const hn::RebindToUnsigned<F> d;
  const auto bits =
      hn::BitCast(d, WidenHalves(ValuesFrom(Halves(), row, c, width)));
  const auto exponent = hn::Set(d, 0x7F800000U);
  const auto masked = hn::Eq(hn::And(bits, exponent), exponent);
  bad = hn::Or(bad, hn::VecFromMask(d, masked));
  return TermsOf(hn::BitCast(F(), hn::IfThenZeroElse(masked, bits)));
}

// Two vectors of numbers of BF16, each in a float's upper half.
HWY_INLINE VF PairOfUpper(VF low, VF high) {
  const hn::RebindToUnsigned<F> d;
  return hn::BitCast(F(), hn::Or(hn::ShiftRight<16>(hn::BitCast(d, low)),
                                 hn::BitCast(d, high)));
}

// The same of FP16, in two terms, those of all panels of columns after the
// other.
HWY_INLINE bool PackPanelOfFp16(const unsigned char* const* rows, int64_t width,
                                int64_t panels, float* packed) {
  const hn::RebindToUnsigned<F> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(F()));
  const int64_t to_second = panels * kBf16Depth * kBf16Panel;
  auto bad = hn::Zero(d);
  for (int64_t c = 0; c < panels * kBf16Panel; c += kBf16Panel) {
    for (int64_t i = 0; i < kBf16Depth; ++i) {
      for (int64_t n = 0; n < kBf16Panel; n += lanes) {
        const Terms low = FiniteTerms(rows[i], c + n, width, bad);
        const Terms high = FiniteTerms(rows[i + kBf16Depth], c + n, width, bad);
        hn::Store(PairOfUpper(low.first, high.first), F(), packed);
        hn::Store(PairOfUpper(low.second, high.second), F(),
                  packed + to_second);
        packed += lanes;
      }
    }
  }
  return hn::AllTrue(d, hn::Eq(bad, hn::Zero(d)));
}

// Values of BF16, or of FP16 in two terms.
template <int kTerms>
inline bool PackValues(const unsigned char* const* rows, int64_t count,
                       int64_t width, int64_t panels, float* packed) {
  bool finite = true;
  for (int64_t k = 0; k < count; k += kBf16Panel) {
    const unsigned char* last[kBf16Panel] = {};
    const bool whole = count - k >= kBf16Panel;
    if (!whole) {
      for (int64_t i = 0; i < count - k; ++i) last[i] = rows[k + i];
    }
    const unsigned char* const* const panel = whole ? rows + k : last;
    if constexpr (kTerms == 2) {
      if (!PackPanelOfFp16(panel, width, panels, packed)) {
        finite = false;
      }
    } else if (HWY_UNLIKELY(
                   !PackPanelOfBf16<false>(panel, width, panels, packed))) {
      finite = false;
      PackPanelOfBf16<true>(panel, width, panels, packed);
    }
    packed += kTerms * panels * kBf16Depth * kBf16Panel;
  }
  return finite;
}

// QK of some rows, in args.scores. Columns are whole panels.
HWY_INLINE void ScoreBf16Rows(const TileArgs& args, int64_t first_row,
                              int64_t rows, const Columns& columns) {
  const Bf16Operands& bf16 = args.bf16;
  const int64_t row_width = bf16.terms * bf16.width;
  const auto scores =
      bf16.terms == 2 ? bf16.products->scores_of_two : bf16.products->scores;
  for (int64_t c = columns.first; c < columns.last; c += kBf16Panel) {
    // Some lines with each panel: a burst of them would hold the products up.
    const PrefetchRange share =
        ShareOfPrefetch(args, first_row, rows, c / kBf16Panel, kBf16Panel);
    for (int64_t n = 0; n < share.bytes; ++n) {
      __builtin_prefetch(share.data + n * kLine, 0, 2);
    }
    scores(bf16.queries + first_row * row_width, bf16.keys + c * row_width,
           bf16.width, rows, 1, args.scores + c);
    // While they are in the first-level cache.
    if (bf16.key_scales != nullptr) {
      const int64_t end = c + kBf16Panel;
      MultiplyByScales(rows, {c, end, c, end}, bf16.key_scales, 1.0F,
                       args.scores);
    }
  }
}

// Where the weights of row `row` of a micro-tile go; as floats, too, where
// `floats`, those of its first row, is not null.
HWY_INLINE PairedWeights PairedWeightsOf(const TileArgs& args,
                                         const Columns& columns, int64_t row,
                                         float* floats) {
  const bool in_place = args.operands == Operands::kBf16InPlace;
  return {args.bf16.weights + row * kBf16WeightStride,
          args.bf16.terms == 2,
          columns.first,
          in_place ? args.in_place.value_scales : args.bf16.value_scales,
          floats == nullptr ? nullptr : floats + row * kScoreStride,
          in_place ? 1.0F / kScaledWeightUnit : 1.0F};
}

// Pairs a row's weights, which have changed, once more.
HWY_INLINE void PairAgain(const TileArgs& args, const Columns& columns,
                          int64_t row, const float* weights) {
  const F d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const PairedWeights to = PairedWeightsOf(args, columns, row, nullptr);
  for (int64_t c = columns.first; c < columns.last; c += kBf16Panel) {
    for (int64_t n = 0; n < kBf16Depth; n += lanes) {
      const float* const low = weights + c + n;
      to.Store(c + n, hn::LoadU(d, low), hn::LoadU(d, low + kBf16Depth));
    }
  }
}

// Output times the rows' factors, plus PV.
HWY_INLINE void AddBf16Values(const TileArgs& args, int64_t first_row,
                              int64_t rows, const Columns& columns,
                              const float* factors) {
  const F d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const Bf16Operands& bf16 = args.bf16;
  const int64_t width = args.states.width;
  float* const output = args.states.output + first_row * width;
  for (int64_t r = 0; r < rows; ++r) {
    if (factors[r] == 1.0F) continue;
    const VF factor = hn::Set(d, factors[r]);
    float* const at = output + r * width;
    for (int64_t c = 0; c < width; c += lanes) {
      const VF gathered = hn::LoadU(d, at + c);
      const VF scaled = hn::Mul(gathered, factor);
      // What is not finite stays, also where the factor is 0.
      hn::StoreU(hn::IfThenElse(hn::IsFinite(gathered), scaled, gathered), d,
                 at + c);
    }
  }
  const int64_t panel = columns.first / kBf16Panel;
  const auto add_values = bf16.terms == 2 ? bf16.products->add_values_of_two
                                          : bf16.products->add_values;
  add_values(bf16.weights,
             bf16.values + panel * bf16.value_panels * kBf16Depth * kBf16Panel,
             bf16.value_panels, rows, columns.last / kBf16Panel - panel, output,
             width);
}

// AddNonFiniteValues() of values of BF16, or of FP16.
HWY_INLINE void AddNonFiniteBf16(const TileArgs& args, int64_t first_row,
                                 int64_t rows, const Columns& columns) {
  const Bf16Operands& bf16 = args.bf16;
  const auto load = [&bf16](int64_t j, int64_t column) HWY_ATTR {
    return ValuesFrom(Halves(), bf16.value_rows[j], column, bf16.value_width);
  };
  if (bf16.terms == 2) {
    return AddNonFiniteValues(args, first_row, rows, columns,
                              [&load](int64_t j, int64_t column) HWY_ATTR {
                                return WidenHalves(load(j, column));
                              });
  }
  AddNonFiniteValues(args, first_row, rows, columns,
                     [&load](int64_t j, int64_t column)
                         HWY_ATTR { return WidenBrains(load(j, column)); });
}

}  // namespace attention::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
// NOLINTEND(misc-definitions-in-headers)

#endif  // include guard
