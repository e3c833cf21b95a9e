// Between QK and the softmax, whatever computed QK: factor, softcap, ALiBi,
// bias and masks. Included once per instruction set.
#if defined(ATTENTION_CORE_CPU_KERNELS_EPILOGUE_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef ATTENTION_CORE_CPU_KERNELS_EPILOGUE_INL_H_
#undef ATTENTION_CORE_CPU_KERNELS_EPILOGUE_INL_H_
#else
#define ATTENTION_CORE_CPU_KERNELS_EPILOGUE_INL_H_
#endif

#include <cstring>

#include "core/cpu/kernels/convert-inl.h"
#include "core/cpu/kernels/math-inl.h"
#include "core/cpu/kernels/tile_args.h"
#include "hwy/highway.h"

// Compiled once per instruction set, into a namespace of its own each time.
// NOLINTBEGIN(misc-definitions-in-headers)
HWY_BEFORE_NAMESPACE();
namespace attention::cpu::HWY_NAMESPACE {

HWY_INLINE VF MinusInfinity() { return hn::Set(F(), -__builtin_inff()); }

// Columns of a tile that a micro-tile computes: whole vectors that hold every
// key that any of its rows may attend, and those keys themselves.
struct Columns {
  int64_t first;  // a panel's begin
  int64_t last;   // past the last vector
  int64_t begin;  // first key
  int64_t end;    // past the last key
};

// Rows of kScoreStride numbers, one for each key, times the keys' scales.
HWY_INLINE void MultiplyByScales(int64_t rows, const Columns& columns,
                                 const float* scales, float unit,
                                 float* numbers) {
  const F d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t c = columns.first; c < columns.last; c += lanes) {
    const VF scale = hn::Mul(hn::LoadU(d, scales + c), hn::Set(d, unit));
    for (int64_t r = 0; r < rows; ++r) {
      float* const to = numbers + r * kScoreStride + c;
      hn::StoreU(hn::Mul(hn::LoadU(d, to), scale), d, to);
    }
  }
}

// `panel`, `vector`: what `first` and `last` are multiples of.
HWY_INLINE Columns ColumnsOfRows(const Epilogue& epilogue, int64_t first_row,
                                 int64_t rows, int64_t panel, int64_t vector) {
  int64_t begin = kMaxTileKeys;
  int64_t end = 0;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t b = epilogue.begin[first_row + r];
    const int64_t e = epilogue.end[first_row + r];
    if (b >= e) continue;
    begin = HWY_MIN(begin, b);
    end = HWY_MAX(end, e);
  }
  if (begin >= end) return {0, 0, 0, 0};
  return {begin / panel * panel, (end + vector - 1) / vector * vector, begin,
          end};
}

// The bias of a row, -inf where attend_mask leaves a key out, for the keys that
// its range leaves; 0 outside.
HWY_INLINE void LoadAddends(const Epilogue& epilogue, int64_t row,
                            const Columns& columns, float* line) {
  const int64_t begin = epilogue.begin[row];
  const int64_t end = epilogue.end[row];
  for (int64_t j = columns.first; j < columns.last; ++j) line[j] = 0.0F;
  if (epilogue.bias_rows != nullptr) {
    const unsigned char* bias =
        epilogue.bias_rows[row] + epilogue.first_key * epilogue.bias_stride;
    const int64_t size = SizeOf(epilogue.bias_type);
    if (epilogue.bias_stride == size && IsAligned(bias, 4)) {
      WidenDense(epilogue.bias_type, bias + begin * size, end - begin,
                 line + begin);
    } else {
      for (int64_t j = begin; j < end; ++j) {
        line[j] = LoadOne(epilogue.bias_type, bias + j * epilogue.bias_stride);
      }
    }
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

// softcap * tanh(score / softcap). Scores that are small beside the softcap
// stay as they are, for their quotient may be too small for FP32.
HWY_INLINE VF Capped(VF score, float softcap) {
  const F d;
  const VF cap = hn::Set(d, softcap);
  const VF capped = hn::Mul(cap, Tanh(hn::Div(score, cap)));
  const auto small = hn::Lt(hn::Abs(score), hn::Mul(cap, hn::Set(d, 0x1p-13F)));
  return hn::IfThenElse(small, score, capped);
}

// Makes scores of what QK gave, and caps them.
HWY_INLINE void ScaleAndCap(const TileArgs& args, int64_t row,
                            const Columns& columns, float* scores) {
  const F d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const Epilogue& epilogue = args.epilogue;
  const VF minus_infinity = MinusInfinity();
  const VF factor = hn::Set(d, epilogue.factor);
  const VF row_addend = hn::Set(
      d, epilogue.row_addend == nullptr ? 0.0F : epilogue.row_addend[row]);
  const bool distances = args.operands == Operands::kPacked &&
                         args.packed.score == Score::kDifference;
  for (int64_t c = columns.first; c < columns.last; c += lanes) {
    const VF raw = hn::LoadU(d, scores + c);
    VF s = hn::MulAdd(raw, factor, row_addend);
    // Infinitely far, also where the factor is too small for FP32.
    if (distances) {
      s = hn::IfThenElse(hn::Eq(raw, minus_infinity), minus_infinity, s);
    }
    if (epilogue.softcap > 0.0F) s = Capped(s, epilogue.softcap);
    hn::StoreU(s, d, scores + c);
  }
}

// Distances are those of FP32: exact below 2^24.
HWY_INLINE void SubtractAlibi(const Epilogue& epilogue, int64_t row,
                              const Columns& columns, float* scores) {
  const F d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const VF slope = hn::Set(d, epilogue.alibi_slopes[row]);
  const VF position = hn::Set(d, epilogue.alibi_positions[row]);
  const VF step = hn::Set(d, static_cast<float>(lanes));
  VF column = hn::Iota(d, static_cast<float>(columns.first));
  for (int64_t c = columns.first; c < columns.last; c += lanes) {
    const VF distance = hn::Abs(hn::Sub(position, column));
    hn::StoreU(hn::NegMulAdd(slope, distance, hn::LoadU(d, scores + c)), d,
               scores + c);
    column = hn::Add(column, step);
  }
}

// Bias and attend_mask. What they mask is assigned, not added: a masked NaN
// must not survive.
HWY_INLINE void AddBiasAndMask(const TileArgs& args, int64_t row,
                               const Columns& columns, float* scores) {
  const F d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const VF minus_infinity = MinusInfinity();
  float* const line = args.scores + kAddendRow * kScoreStride;
  LoadAddends(args.epilogue, row, columns, line);
  for (int64_t c = columns.first; c < columns.last; c += lanes) {
    const VF addend = hn::LoadU(d, line + c);
    const VF s = hn::Add(hn::LoadU(d, scores + c), addend);
    hn::StoreU(
        hn::IfThenElse(hn::Eq(addend, minus_infinity), minus_infinity, s), d,
        scores + c);
  }
}

// The one way from what QK gave to final scores, of one row. A step that a
// problem does not ask for costs a comparison; nothing else decides whether
// there is something to do.
HWY_INLINE void FinishScores(const TileArgs& args, int64_t row,
                             const Columns& columns, float* scores) {
  const Epilogue& epilogue = args.epilogue;
  if (epilogue.factor != 1.0F || epilogue.row_addend != nullptr ||
      epilogue.softcap > 0.0F) {
    ScaleAndCap(args, row, columns, scores);
  }
  if (epilogue.alibi_slopes != nullptr) {
    SubtractAlibi(epilogue, row, columns, scores);
  }
  if (epilogue.bias_rows != nullptr || epilogue.mask_rows != nullptr) {
    AddBiasAndMask(args, row, columns, scores);
  }
  MaskEnds(columns, epilogue.begin[row], epilogue.end[row], scores);
}

// Notes for a Gaussian row whether a key that takes part scored below what
// makes it far, given the row's scores before and after the epilogue.
HWY_INLINE void NoteFarKeys(const FarRows& far_rows, int64_t row,
                            const Columns& columns, const float* raw,
                            const float* scores) {
  const F d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const VF bound = hn::Set(d, far_rows.score);
  for (int64_t c = columns.first; c < columns.last; c += lanes) {
    const auto far = hn::And(hn::Lt(hn::LoadU(d, raw + c), bound),
                             hn::Gt(hn::LoadU(d, scores + c), MinusInfinity()));
    if (!hn::AllFalse(d, far)) {
      far_rows.met_far_key[row] = 1;
      return;
    }
  }
}

// FinishScores() of all rows of a micro-tile.
HWY_INLINE void FinishScoresOfRows(const TileArgs& args, int64_t first_row,
                                   int64_t rows, const Columns& columns) {
  const FarRows& far_rows = args.far_rows;
  float* const raw = args.scores + kRawRow * kScoreStride;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t row = first_row + r;
    float* const scores = args.scores + r * kScoreStride;
    const bool looks =
        far_rows.met_far_key != nullptr && far_rows.met_far_key[row] == 0;
    if (looks) {
      memcpy(raw + columns.first, scores + columns.first,
             static_cast<size_t>(columns.last - columns.first) * sizeof(float));
    }
    FinishScores(args, row, columns, scores);
    if (looks) NoteFarKeys(far_rows, row, columns, raw, scores);
  }
}

}  // namespace attention::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
// NOLINTEND(misc-definitions-in-headers)

#endif  // include guard
