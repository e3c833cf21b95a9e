// The same attention in FP64, for rows that FP32 does not serve: four rows
// against a tile of keys. Every row is computed for itself, lane by lane and
// key by key in one order, whatever stands beside it in its group. Included
// once per instruction set.
#if defined(ATTENTION_CORE_CPU_WIDE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTENTION_CORE_CPU_WIDE_INL_H_
#undef ATTENTION_CORE_CPU_WIDE_INL_H_
#else
#define ATTENTION_CORE_CPU_WIDE_INL_H_
#endif

#include "core/cpu/math-inl.h"
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

// Compiled once per instruction set, into a namespace of its own each time.
// NOLINTBEGIN(misc-definitions-in-headers)
HWY_BEFORE_NAMESPACE();
namespace attention::cpu::HWY_NAMESPACE {

using WD = hn::CappedTag<double, kMaxLanes / 2>;
using VD = hn::Vec<WD>;
using WideFloats = hn::Rebind<float, WD>;

inline constexpr int kWide = static_cast<int>(kWideRows);

HWY_INLINE VD WideMinusInfinity() { return hn::Set(WD(), -__builtin_inf()); }
// A weight of a key that takes no part: 0 to every sum, and known by its sign.
HWY_INLINE VD WideNoPart() { return hn::Set(WD(), -0.0); }

// e^x for x <= 0; the library's takes integers out of x, which -inf would
// overflow. From -746 on it is 0 in any case.
HWY_INLINE VD WideExp(VD x) {
  const WD d;
  return hn::Exp(d, hn::Max(x, hn::Set(d, -1000.0)));
}

// tanh(x) for any x; from 20 on it is 1.
HWY_INLINE VD WideTanh(VD x) {
  const WD d;
  const VD magnitude = hn::Min(hn::Abs(x), hn::Set(d, 20.0));
  const VD tanh = hn::CopySign(hn::Tanh(d, magnitude), x);
  return hn::IfThenElse(hn::IsNaN(x), x, tanh);
}

// Scores beyond FP32's range are infinite.
HWY_INLINE VD LimitToFloatRange(VD x) {
  const WD d;
  const VD most = hn::Set(d, 3.4028234663852886e38);
  const VD infinity = hn::Set(d, __builtin_inf());
  x = hn::IfThenElse(hn::Gt(x, most), infinity, x);
  return hn::IfThenElse(hn::Lt(x, hn::Neg(most)), WideMinusInfinity(), x);
}

// Exact, and as fast for subnormal numbers, which a conversion would take a
// hundred times as long for: their digits are whole numbers.
HWY_INLINE VD WidenFloats(const float* from) {
  const WD d;
  const WideFloats df;
  const hn::RebindToSigned<WideFloats> di;
  const auto x = hn::LoadU(df, from);
  const auto bits = hn::BitCast(di, x);
  const auto magnitude = hn::And(bits, hn::Set(di, 0x7FFFFFFF));
  const auto small = hn::Lt(magnitude, hn::Set(di, 0x00800000));
  const auto digits = hn::IfThenElseZero(small, magnitude);
  if (HWY_LIKELY(hn::AllTrue(di, hn::Eq(digits, hn::Zero(di))))) {
    return hn::PromoteTo(d, x);
  }
  const auto normal = hn::BitCast(df, hn::IfThenZeroElse(small, bits));
  const auto whole =
      hn::IfThenElse(hn::Lt(bits, hn::Zero(di)), hn::Neg(digits), digits);
  return hn::MulAdd(hn::PromoteTo(d, whole), hn::Set(d, 0x1p-149),
                    hn::PromoteTo(d, normal));
}

bool WidenToDouble(const float* from, int64_t count, double* to) {
  const WD d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const VD zero = hn::Zero(d);
  VD marks = zero;  // NaN where a lane has met NaN or an infinity
  for (int64_t i = 0; i < count; i += lanes) {
    const VD x = WidenFloats(from + i);
    hn::StoreU(x, d, to + i);
    marks = hn::MulAdd(x, zero, marks);
  }
  return hn::AllTrue(d, hn::Eq(marks, zero));
}

bool WideExpTwice(const double* from, int64_t count, double* to) {
  const WD d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const VD most = hn::Set(d, kMostWideProjection);
  bool good = true;
  for (int64_t i = 0; i < count; i += lanes) {
    const VD x = hn::LoadU(d, from + i);
    const VD twice = hn::Add(x, x);
    good &= hn::AllTrue(d, hn::Le(hn::Abs(x), most));
    hn::StoreU(hn::Exp(d, twice), d, to + i);
  }
  return good;
}

template <int kRows>
HWY_INLINE void WideProjectGroup(const WideProjectArgs& args, int64_t row) {
  const WD d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t c = 0; c < args.to_width; c += lanes) {
    VD sum[kRows];
    ATTENTION_UNROLL
    for (int r = 0; r < kRows; ++r) sum[r] = hn::Zero(d);
    const float* m = args.m + c;
    const double* from = args.from + row * args.from_stride;
    for (int64_t i = 0; i < args.from_width; ++i) {
      const VD v = WidenFloats(m);
      ATTENTION_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const VD x = hn::Set(d, from[r * args.from_stride + i]);
        sum[r] = hn::MulAdd(x, v, sum[r]);
      }
      m += args.m_stride;
    }
    for (int r = 0; r < kRows; ++r) {
      hn::StoreU(sum[r], d, args.to + (row + r) * args.to_width + c);
    }
  }
}

void WideProject(const WideProjectArgs& args) {
  int64_t r = 0;
  for (; r + 4 <= args.rows; r += 4) WideProjectGroup<4>(args, r);
  for (; r < args.rows; ++r) WideProjectGroup<1>(args, r);
}

// Keys of the tile that some row of the group may attend, and whole pairs of
// vectors around them.
struct WideColumns {
  int64_t first;
  int64_t last;
  int64_t begin;
  int64_t end;
};

HWY_INLINE WideColumns WideColumnsOf(const WideArgs& args) {
  const int64_t pair = 2 * static_cast<int64_t>(hn::Lanes(WD()));
  int64_t begin = kWideKeys;
  int64_t end = 0;
  for (int r = 0; r < kWide; ++r) {
    if (args.begin[r] >= args.end[r]) continue;
    begin = HWY_MIN(begin, args.begin[r]);
    end = HWY_MAX(end, args.end[r]);
  }
  if (begin >= end) return {0, 0, 0, 0};
  return {begin / pair * pair, (end + pair - 1) / pair * pair, begin, end};
}

// Two vectors of keys: sum q k, or the sum of (q - k)^2.
template <bool kDifference>
HWY_INLINE void WidePanel(const WideArgs& args, int64_t column) {
  const WD d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  VD sum0[kWide];
  VD sum1[kWide];
  ATTENTION_UNROLL
  for (int r = 0; r < kWide; ++r) sum0[r] = sum1[r] = hn::Zero(d);
  const double* HWY_RESTRICT keys = args.keys + column;
  const double* HWY_RESTRICT queries = args.queries;
  for (int64_t i = 0; i < args.width; ++i) {
    const VD key0 = hn::LoadU(d, keys);
    const VD key1 = hn::LoadU(d, keys + lanes);
    ATTENTION_UNROLL
    for (int r = 0; r < kWide; ++r) {
      const VD query = hn::Set(d, queries[r]);
      if constexpr (kDifference) {
        const VD difference0 = hn::Sub(query, key0);
        const VD difference1 = hn::Sub(query, key1);
        sum0[r] = hn::MulAdd(difference0, difference0, sum0[r]);
        sum1[r] = hn::MulAdd(difference1, difference1, sum1[r]);
      } else {
        sum0[r] = hn::MulAdd(query, key0, sum0[r]);
        sum1[r] = hn::MulAdd(query, key1, sum1[r]);
      }
    }
    keys += args.key_stride;
    queries += kWide;
  }
  double* const scores = args.scores + column;
  ATTENTION_UNROLL
  for (int r = 0; r < kWide; ++r) {
    hn::StoreU(sum0[r], d, scores + r * kWideStride);
    hn::StoreU(sum1[r], d, scores + r * kWideStride + lanes);
  }
}

// One row: sum w tanh(q + k), as
//   tanh(q + k) = 1 - 2 / (e^(2q) e^(2k) + 1),
// two terms to a division: w0 / x0 + w1 / x1 = (w0 x1 + w1 x0) / (x0 x1).
HWY_INLINE void WideTanhRow(const WideArgs& args, int row,
                            const WideColumns& columns) {
  const WD d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const VD one = hn::Set(d, 1.0);
  const double* const weights = args.tanh_weights;
  const int64_t even = args.width / 2 * 2;
  for (int64_t c = columns.first; c < columns.last; c += lanes) {
    VD sum = hn::Zero(d);
    const double* keys = args.key_exponentials + c;
    const double* queries = args.query_exponentials + row;
    for (int64_t i = 0; i < even; i += 2) {
      const VD x0 = hn::MulAdd(hn::Set(d, queries[0]), hn::LoadU(d, keys), one);
      const VD x1 = hn::MulAdd(hn::Set(d, queries[kWide]),
                               hn::LoadU(d, keys + args.key_stride), one);
      const VD n = hn::MulAdd(hn::Set(d, weights[i]), x1,
                              hn::Mul(hn::Set(d, weights[i + 1]), x0));
      sum = hn::Add(sum, hn::Div(n, hn::Mul(x0, x1)));
      keys += 2 * args.key_stride;
      queries += int64_t{2} * kWide;
    }
    if (even < args.width) {
      const VD x = hn::MulAdd(hn::Set(d, *queries), hn::LoadU(d, keys), one);
      sum = hn::Add(sum, hn::Div(hn::Set(d, weights[even]), x));
    }
    const VD all = hn::Set(d, args.tanh_weight_sum);
    hn::StoreU(hn::NegMulAdd(hn::Set(d, 2.0), sum, all), d,
               args.scores + row * kWideStride + c);
  }
}

// The same where exponentials would overflow.
HWY_INLINE void WideExactTanhRow(const WideArgs& args, int row,
                                 const WideColumns& columns) {
  const WD d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t c = columns.first; c < columns.last; c += lanes) {
    VD sum = hn::Zero(d);
    const double* keys = args.keys + c;
    const double* queries = args.queries + row;
    for (int64_t i = 0; i < args.width; ++i) {
      const VD t = hn::Add(hn::Set(d, *queries), hn::LoadU(d, keys));
      sum = hn::MulAdd(hn::Set(d, args.tanh_weights[i]), WideTanh(t), sum);
      keys += args.key_stride;
      queries += kWide;
    }
    hn::StoreU(sum, d, args.scores + row * kWideStride + c);
  }
}

// Softcap, bias and masks; -inf where a key takes no part.
HWY_INLINE void FinishWideRow(const WideArgs& args, int row,
                              const WideColumns& columns) {
  const WD d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const VD factor = hn::Set(d, args.factor);
  const VD softcap = hn::Set(d, args.softcap);
  const VD none = WideMinusInfinity();
  const VD begin = hn::Set(d, static_cast<double>(args.begin[row]));
  const VD end = hn::Set(d, static_cast<double>(args.end[row]));
  double* const scores = args.scores + row * kWideStride;
  for (int64_t c = columns.first; c < columns.last; c += lanes) {
    VD s = LimitToFloatRange(hn::Mul(hn::LoadU(d, scores + c), factor));
    if (args.softcap > 0.0) {
      s = hn::Mul(softcap, WideTanh(hn::Div(s, softcap)));
    }
    if (args.addends != nullptr) {
      const VD addend = hn::LoadU(d, args.addends + row * kWideStride + c);
      s = hn::IfThenElse(hn::Eq(addend, none), none,
                         LimitToFloatRange(hn::Add(s, addend)));
    }
    const VD index = hn::Iota(d, static_cast<double>(c));
    const auto kept = hn::And(hn::Ge(index, begin), hn::Lt(index, end));
    hn::StoreU(hn::IfThenElse(kept, s, none), d, scores + c);
  }
}

// The group's final scores. One function for both sweeps, so that they see the
// very same ones.
HWY_NOINLINE void WideScores(const WideArgs& args, const WideColumns& columns) {
  const int64_t pair = 2 * static_cast<int64_t>(hn::Lanes(WD()));
  if (args.score == Score::kTanhExact) {
    for (int r = 0; r < kWide; ++r) {
      if (args.begin[r] >= args.end[r]) continue;
      if (args.exact[r] != 0) {
        WideExactTanhRow(args, r, columns);
      } else {
        WideTanhRow(args, r, columns);
      }
    }
  } else {
    for (int64_t c = columns.first; c < columns.last; c += pair) {
      if (args.score == Score::kDifference) {
        WidePanel</*kDifference=*/true>(args, c);
      } else {
        WidePanel</*kDifference=*/false>(args, c);
      }
    }
  }
  for (int r = 0; r < kWide; ++r) {
    if (args.begin[r] < args.end[r]) FinishWideRow(args, r, columns);
  }
}

HWY_INLINE void FillNoPart(const WideColumns& columns, double* p) {
  for (int64_t c = columns.first; c < columns.last; ++c) p[c] = -0.0;
}

// The row's largest score in the tile; NaN where one is NaN or +inf.
HWY_INLINE double WideMaximum(const WideColumns& columns,
                              const double* scores) {
  const WD d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const VD zero = hn::Zero(d);
  const VD none = WideMinusInfinity();
  VD top = none;
  VD marks = zero;
  for (int64_t c = columns.first; c < columns.last; c += lanes) {
    const VD s = hn::LoadU(d, scores + c);
    top = hn::Max(top, s);
    marks = hn::MulAdd(hn::IfThenZeroElse(hn::Eq(s, none), s), zero, marks);
  }
  if (!hn::AllTrue(d, hn::Eq(marks, zero))) return __builtin_nan("");
  return hn::GetLane(hn::MaxOfLanes(d, top));
}

// Puts a row's weights, relative to its new maximum, in the place of its scores
// and brings its state up to date. Returns what the weighted values gathered so
// far must be multiplied by.
HWY_NOINLINE double WideSoftmaxRow(const WideArgs& args, int row,
                                   const WideColumns& columns) {
  const WD d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  double* const p = args.scores + row * kWideStride;
  const bool attends = args.begin[row] < args.end[row];
  const double top = attends ? WideMaximum(columns, p) : -__builtin_inf();
  if (top != top) args.sum[row] = top;
  // Nothing to add, or a row that is NaN and stays so.
  if (top == -__builtin_inf() || args.sum[row] != args.sum[row]) {
    FillNoPart(columns, p);
    return 1.0;
  }
  const double old = args.max[row];
  const double max = HWY_MAX(old, top);
  const VD maximum = hn::Set(d, max);
  VD sum = hn::Zero(d);
  for (int64_t c = columns.first; c < columns.last; c += lanes) {
    const VD s = hn::LoadU(d, p + c);
    const VD weight =
        hn::IfThenElse(hn::Eq(s, WideMinusInfinity()), WideNoPart(),
                       WideExp(hn::Sub(s, maximum)));
    sum = hn::Add(sum, weight);
    hn::StoreU(weight, d, p + c);
  }
  const double factor =
      old == max ? 1.0 : hn::GetLane(WideExp(hn::Set(d, old - max)));
  args.max[row] = max;
  args.sum[row] = args.sum[row] * factor + hn::GetLane(hn::SumOfLanes(d, sum));
  return factor;
}

// A dropped key takes no part in the weighted values.
HWY_INLINE void WideDropRow(const WideArgs& args, int row,
                            const WideColumns& columns) {
  const WD d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  double* const p = args.scores + row * kWideStride;
  const double* const dropout = args.dropout + row * kWideStride;
  for (int64_t c = columns.first; c < columns.last; c += lanes) {
    const VD kept = hn::LoadU(d, dropout + c);
    const VD weight = hn::Mul(hn::LoadU(d, p + c), kept);
    hn::StoreU(hn::IfThenElse(hn::Eq(kept, hn::Zero(d)), WideNoPart(), weight),
               d, p + c);
  }
}

// Two vectors of the group's outputs. Where values are not all finite, those of
// keys that take no part are left out.
template <bool kFinite>
HWY_INLINE void AddWideValues(const WideArgs& args, const WideColumns& columns,
                              const double* factors, int64_t column) {
  const WD d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  VD sum0[kWide];
  VD sum1[kWide];
  ATTENTION_UNROLL
  for (int r = 0; r < kWide; ++r) {
    const double* from = args.output + r * args.value_width + column;
    const VD factor = hn::Set(d, factors[r]);
    sum0[r] = hn::Mul(hn::LoadU(d, from), factor);
    sum1[r] = hn::Mul(hn::LoadU(d, from + lanes), factor);
  }
  const double* HWY_RESTRICT p = args.scores + columns.begin;
  const double* HWY_RESTRICT values =
      args.values + columns.begin * args.value_width + column;
  for (int64_t j = columns.begin; j < columns.end; ++j) {
    const VD value0 = hn::LoadU(d, values);
    const VD value1 = hn::LoadU(d, values + lanes);
    const bool careful = !kFinite && args.value_finite[j] == 0;
    ATTENTION_UNROLL
    for (int r = 0; r < kWide; ++r) {
      if (careful && __builtin_signbit(p[r * kWideStride]) != 0) continue;
      const VD weight = hn::Set(d, p[r * kWideStride]);
      sum0[r] = hn::MulAdd(weight, value0, sum0[r]);
      sum1[r] = hn::MulAdd(weight, value1, sum1[r]);
    }
    ++p;
    values += args.value_width;
  }
  ATTENTION_UNROLL
  for (int r = 0; r < kWide; ++r) {
    double* to = args.output + r * args.value_width + column;
    hn::StoreU(sum0[r], d, to);
    hn::StoreU(sum1[r], d, to + lanes);
  }
}

HWY_INLINE void AddAllWideValues(const WideArgs& args,
                                 const WideColumns& columns,
                                 const double* factors) {
  const int64_t pair = 2 * static_cast<int64_t>(hn::Lanes(WD()));
  for (int64_t c = 0; c < args.value_width; c += pair) {
    if (args.value_finite == nullptr) {
      AddWideValues</*kFinite=*/true>(args, columns, factors, c);
    } else {
      AddWideValues</*kFinite=*/false>(args, columns, factors, c);
    }
  }
}

void WideAttend(const WideArgs& args) {
  const WideColumns columns = WideColumnsOf(args);
  if (columns.end == 0) return;
  WideScores(args, columns);
  double factors[kWide];
  for (int r = 0; r < kWide; ++r) {
    factors[r] = WideSoftmaxRow(args, r, columns);
    if (args.dropout != nullptr) WideDropRow(args, r, columns);
  }
  AddAllWideValues(args, columns, factors);
}

void WideAverage(const WideArgs& args) {
  const WideColumns columns = WideColumnsOf(args);
  const double factors[kWide] = {1.0, 1.0, 1.0, 1.0};
  AddAllWideValues(args, columns, factors);
}

void WideWeights(const WideArgs& args) {
  const WD d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const WideColumns columns = WideColumnsOf(args);
  if (columns.end == 0) return;
  WideScores(args, columns);
  for (int r = 0; r < kWide; ++r) {
    if (args.begin[r] >= args.end[r]) continue;
    const VD max = hn::Set(d, args.max[r]);
    const VD total = hn::Set(d, args.sum[r]);
    double* const p = args.scores + r * kWideStride;
    for (int64_t c = columns.first; c < columns.last; c += lanes) {
      const VD s = hn::LoadU(d, p + c);
      // NaN wherever the sum is; absent keys have 0 in such a row, too.
      VD weight = hn::Div(WideExp(hn::Sub(s, max)), total);
      if (args.dropout != nullptr) {
        weight =
            hn::Mul(weight, hn::LoadU(d, args.dropout + r * kWideStride + c));
      }
      hn::StoreU(hn::IfThenZeroElse(hn::Eq(s, WideMinusInfinity()), weight), d,
                 p + c);
    }
  }
}

}  // namespace attention::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
// NOLINTEND(misc-definitions-in-headers)

#endif  // include guard
