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
#include "core/cpu/kernels/epilogue-inl.h"
#include "core/cpu/kernels/math-inl.h"
#include "core/cpu/kernels/pack-inl.h"
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

inline void CopyBf16Rows(const RowSource& from, int64_t rows,
                         int64_t padded_rows, int64_t width, float* to,
                         int64_t to_stride) {
  const Pairs d;
  const hn::Repartition<uint8_t, Pairs> bytes;
  const bool dense = from.column_stride == 2;
  const int64_t padded = 2 * to_stride;
  HWY_ALIGN uint16_t piece[kPairsLanes];
  for (int64_t r = 0; r < rows; ++r) {
    const unsigned char* row = from.data + r * from.row_stride;
    auto* out = reinterpret_cast<uint16_t*>(to + r * to_stride);
    int64_t i = 0;
    for (; dense && i + kPairsLanes <= width; i += kPairsLanes) {
      hn::Store(hn::BitCast(d, hn::LoadU(bytes, row + 2 * i)), d, out + i);
    }
    for (; i < padded; i += kPairsLanes) {
      hn::Store(hn::Zero(d), d, piece);
      const int64_t count = HWY_MIN(kPairsLanes, width - i);
      for (int64_t k = 0; k < count; ++k) {
        memcpy(piece + k, row + (i + k) * from.column_stride, 2);
      }
      hn::Store(hn::Load(d, piece), d, out + i);
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

// Elements of a row of values from column `c` on, 0 for what is not finite, as
// the lower halves of a vector; what is not finite is noted in `bad`. No row,
// and what lies beyond `width`, is 0.
HWY_INLINE hn::VFromD<hn::RebindToUnsigned<F>> FiniteHalves(
    const unsigned char* row, int64_t c, int64_t width,
    hn::VFromD<hn::RebindToUnsigned<F>>& bad) {
  const hn::RebindToUnsigned<F> d;
  const hn::Rebind<uint16_t, F> narrow;
  const hn::Repartition<uint8_t, decltype(narrow)> bytes;
  constexpr auto kLanes = static_cast<int64_t>(hn::MaxLanes(F()));
  if (row == nullptr || c >= width) return hn::Zero(d);
  hn::VFromD<decltype(narrow)> halves;
  if (HWY_LIKELY(c + kLanes <= width)) {
    halves = hn::BitCast(narrow, hn::LoadU(bytes, row + 2 * c));
  } else {
    HWY_ALIGN uint16_t piece[kLanes] = {};
    memcpy(piece, row + 2 * c, static_cast<size_t>(width - c) * 2);
    halves = hn::Load(narrow, piece);
  }
  const auto wide = hn::PromoteTo(d, halves);
  const auto infinity = hn::Set(d, uint32_t{0x7F80});
  const auto masked = hn::Eq(hn::And(wide, infinity), infinity);
  bad = hn::Or(bad, hn::VecFromMask(d, masked));
  return hn::IfThenZeroElse(masked, wide);
}

// A panel of keys: pairs of key i and key 16 + i.
HWY_INLINE void PackPanelOfValues(const unsigned char* const* rows,
                                  int64_t width, int64_t panels, float* packed,
                                  hn::VFromD<hn::RebindToUnsigned<F>>& bad) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(F()));
  for (int64_t c = 0; c < panels * kBf16Panel; c += kBf16Panel) {
    for (int64_t i = 0; i < kBf16Depth; ++i) {
      for (int64_t n = 0; n < kBf16Panel; n += lanes) {
        const auto low = FiniteHalves(rows[i], c + n, width, bad);
        const auto high = FiniteHalves(rows[i + kBf16Depth], c + n, width, bad);
        hn::Store(hn::BitCast(F(), hn::Or(low, hn::ShiftLeft<16>(high))), F(),
                  packed);
        packed += lanes;
      }
    }
  }
}

inline bool PackBf16Values(const unsigned char* const* rows, int64_t count,
                           int64_t width, int64_t panels, float* packed) {
  const hn::RebindToUnsigned<F> d;
  auto bad = hn::Zero(d);
  for (int64_t k = 0; k < count; k += kBf16Panel) {
    const unsigned char* last[kBf16Panel] = {};
    if (count - k < kBf16Panel) {
      for (int64_t i = 0; i < count - k; ++i) last[i] = rows[k + i];
    }
    PackPanelOfValues(count - k < kBf16Panel ? last : rows + k, width, panels,
                      packed, bad);
    packed += panels * kBf16Depth * kBf16Panel;
  }
  return hn::AllTrue(d, hn::Eq(bad, hn::Zero(d)));
}

// QK of some rows, in args.scores. Columns are whole panels.
HWY_INLINE void ScoreBf16Rows(const TileArgs& args, int64_t first_row,
                              int64_t rows, const Columns& columns) {
  const Bf16Operands& bf16 = args.bf16;
  if (bf16.key_rows != nullptr) {
    const int64_t panel = columns.first / kBf16Panel;
    return bf16.products->scores_in_place(
        bf16.packed_queries + first_row * bf16.width, bf16.key_rows + 2 * panel,
        bf16.width, rows, columns.last / kBf16Panel - panel,
        args.scores + columns.first);
  }
  bf16.products->scores(bf16.queries + first_row * bf16.width,
                        bf16.keys + columns.first * bf16.width, bf16.width,
                        rows, (columns.last - columns.first) / kBf16Panel,
                        args.scores + columns.first);
}

// Where the weights of row `row` of a micro-tile go; as floats, too, where
// `floats`, those of its first row, is not null.
HWY_INLINE PairedWeights PairedWeightsOf(const TileArgs& args,
                                         const Columns& columns, int64_t row,
                                         float* floats) {
  return {args.bf16.weights + row * kBf16WeightStride, columns.first,
          floats == nullptr ? nullptr : floats + row * kScoreStride};
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
      hn::StoreU(hn::Mul(hn::LoadU(d, at + c), factor), d, at + c);
    }
  }
  const int64_t panel = columns.first / kBf16Panel;
  bf16.products->add_values(
      bf16.weights,
      bf16.values + panel * bf16.value_panels * kBf16Depth * kBf16Panel,
      bf16.value_panels, rows, columns.last / kBf16Panel - panel, output,
      width);
}

}  // namespace attention::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
// NOLINTEND(misc-definitions-in-headers)

#endif  // include guard
