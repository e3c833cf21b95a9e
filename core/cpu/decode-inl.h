// A few rows against keys and values that are read once, as they lie in memory:
// what one step of decoding is. Included once per instruction set.
#if defined(ATTENTION_CORE_CPU_DECODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTENTION_CORE_CPU_DECODE_INL_H_
#undef ATTENTION_CORE_CPU_DECODE_INL_H_
#else
#define ATTENTION_CORE_CPU_DECODE_INL_H_
#endif

#include "core/cpu/convert-inl.h"
#include "core/cpu/math-inl.h"
#include "core/cpu/pack-inl.h"
#include "core/cpu/tile-inl.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

// Compiled once per instruction set, into a namespace of its own each time.
// NOLINTBEGIN(misc-definitions-in-headers)
HWY_BEFORE_NAMESPACE();
namespace attention::cpu::HWY_NAMESPACE {

// Rows that share one read of a key, as the registers allow.
inline constexpr int kDecodeRows = kGroupRows > 8 ? 4 : 2;
// Keys whose sums are reduced together.
inline constexpr int kKeysAtOnce = 4;

template <Element kType>
HWY_INLINE VF LoadWide(const unsigned char* row, int64_t index) {
  if constexpr (kType == Element::kFloat32) {
    return hn::LoadU(F(), reinterpret_cast<const float*>(row) + index);
  } else if constexpr (kType == Element::kFloat16) {
    return WidenHalf(reinterpret_cast<const uint16_t*>(row) + index);
  } else {
    return WidenBrain(reinterpret_cast<const uint16_t*>(row) + index);
  }
}

// Asks for all of a row that will be read soon.
HWY_INLINE void PrefetchRow(const unsigned char* row, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) hwy::Prefetch(row + i);
}

template <int kRows, Element kType>
HWY_INLINE void ScoreRows(const TileArgs& args, int64_t first_row,
                          const Columns& columns) {
  const F d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t size = kType == Element::kFloat32 ? 4 : 2;
  const int64_t width = args.score_width;
  const int64_t value_bytes = args.value_width * size;
  const float* queries = args.queries + first_row * width;
  for (int64_t j = columns.first; j < columns.end; j += kKeysAtOnce) {
    const unsigned char* keys[kKeysAtOnce];
    for (int n = 0; n < kKeysAtOnce; ++n) {
      // Past the last key: the last once more; its score is not used.
      const int64_t key = HWY_MIN(j + n, columns.end - 1);
      keys[n] = args.key_rows + key * args.key_row_stride;
      PrefetchRow(args.value_rows + key * args.value_row_stride, value_bytes);
    }
    VF sums[kRows][kKeysAtOnce];
    ATTENTION_UNROLL
    for (int r = 0; r < kRows; ++r) {
      ATTENTION_UNROLL
      for (int n = 0; n < kKeysAtOnce; ++n) sums[r][n] = hn::Zero(d);
    }
    for (int64_t i = 0; i < width; i += lanes) {
      VF key[kKeysAtOnce];
      ATTENTION_UNROLL
      for (int n = 0; n < kKeysAtOnce; ++n) {
        key[n] = LoadWide<kType>(keys[n], i);
      }
      ATTENTION_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const VF query = hn::Load(d, queries + r * width + i);
        ATTENTION_UNROLL
        for (int n = 0; n < kKeysAtOnce; ++n) {
          sums[r][n] = hn::MulAdd(query, key[n], sums[r][n]);
        }
      }
    }
    ATTENTION_UNROLL
    for (int r = 0; r < kRows; ++r) {
      ReduceLanes<kKeysAtOnce>(sums[r], AddOp(),
                               args.scores + r * kScoreStride + j);
    }
  }
}

template <int kRows, int kVectors, Element kType>
HWY_INLINE void AddValueRows(const TileArgs& args, const Columns& columns,
                             int64_t column, const float* factors,
                             float* output) {
  const F d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  VF sums[kRows][kVectors];
  ATTENTION_UNROLL
  for (int r = 0; r < kRows; ++r) {
    ATTENTION_UNROLL
    for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::Zero(d);
  }
  const int64_t key_bytes =
      args.score_width * (kType == Element::kFloat32 ? 4 : 2);
  for (int64_t j = columns.begin; j < columns.end; ++j) {
    const unsigned char* row = args.value_rows + j * args.value_row_stride;
    if (column == 0) {
      PrefetchRow(args.key_rows + (j + args.keys) * args.key_row_stride,
                  key_bytes);
    }
    VF value[kVectors];
    ATTENTION_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      value[v] = LoadWide<kType>(row, column + v * lanes);
    }
    ATTENTION_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const VF weight = hn::Set(d, args.scores[r * kScoreStride + j]);
      ATTENTION_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        sums[r][v] = hn::MulAdd(weight, value[v], sums[r][v]);
      }
    }
  }
  ATTENTION_UNROLL
  for (int r = 0; r < kRows; ++r) {
    const VF factor = hn::Set(d, factors[r]);
    ATTENTION_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      float* to = output + r * args.value_width + column + v * lanes;
      hn::StoreU(hn::MulAdd(hn::LoadU(d, to), factor, sums[r][v]), d, to);
    }
  }
}

struct DecodeGroup {
  const TileArgs& args;

  template <int kRows>
  HWY_NOINLINE void Group(int64_t first_row) const {
    switch (args.row_type) {
      case Element::kFloat32:
        return Typed<kRows, Element::kFloat32>(first_row);
      case Element::kFloat16:
        return Typed<kRows, Element::kFloat16>(first_row);
      case Element::kBFloat16:
        return Typed<kRows, Element::kBFloat16>(first_row);
    }
  }

  template <int kRows, Element kType>
  HWY_INLINE void Typed(int64_t first_row) const {
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(F()));
    const Columns columns = ColumnsOfGroup(args, first_row, kRows);
    if (columns.end == 0) return;
    ScoreRows<kRows, kType>(args, first_row, columns);
    FinishGroup<kRows>(args, first_row, columns);
    float factors[kRows];
    SoftmaxGroup<kRows>(args, first_row, columns, factors);
    if (args.dropout != nullptr) {
      for (int r = 0; r < kRows; ++r) {
        DropRow(args, first_row + r, columns, args.scores + r * kScoreStride);
      }
    }
    float* output = args.output + first_row * args.value_width;
    int64_t c = 0;
    for (; c + 4 * lanes <= args.value_width; c += 4 * lanes) {
      AddValueRows<kRows, 4, kType>(args, columns, c, factors, output);
    }
    for (; c < args.value_width; c += lanes) {
      AddValueRows<kRows, 1, kType>(args, columns, c, factors, output);
    }
  }
};

void AttendRows(const TileArgs& args) {
  const DecodeGroup visit{args};
  int64_t r = 0;
  if constexpr (kDecodeRows >= 4) {
    for (; args.rows - r >= 4; r += 4) visit.Group<4>(r);
  }
  for (; args.rows - r >= 2; r += 2) visit.Group<2>(r);
  if (r < args.rows) visit.Group<1>(r);
}

}  // namespace attention::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
// NOLINTEND(misc-definitions-in-headers)

#endif  // include guard
