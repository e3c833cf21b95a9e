// The first product: a group of queries against a panel of keys, with all sums
// in registers. Included once per instruction set.
#if defined(ATTENTION_CORE_CPU_SCORE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTENTION_CORE_CPU_SCORE_INL_H_
#undef ATTENTION_CORE_CPU_SCORE_INL_H_
#else
#define ATTENTION_CORE_CPU_SCORE_INL_H_
#endif

#include "core/cpu/math-inl.h"
#include "hwy/highway.h"

// Compiled once per instruction set, into a namespace of its own each time.
// NOLINTBEGIN(misc-definitions-in-headers)
HWY_BEFORE_NAMESPACE();
namespace attention::cpu::HWY_NAMESPACE {

// Steps first ... last - 1 of a dot product of kRows queries and two vectors of
// keys. kBring: each of them asks for the next line of what comes, into the
// second cache, for the first one is full of the tile.
template <int kRows, bool kBring>
HWY_INLINE void DotSteps(const float* HWY_RESTRICT queries,
                         const float* HWY_RESTRICT keys, int64_t first,
                         int64_t last, const unsigned char* coming, VF* sum0,
                         VF* sum1) {
  const F d;
  const size_t lanes = hn::Lanes(d);
  keys += static_cast<size_t>(2 * first) * lanes;
  queries += first * kRows;
  for (int64_t i = first; i < last; ++i) {
    const VF key0 = hn::Load(d, keys);
    const VF key1 = hn::Load(d, keys + lanes);
    ATTENTION_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const VF query = hn::Set(d, queries[r]);
      sum0[r] = hn::MulAdd(query, key0, sum0[r]);
      sum1[r] = hn::MulAdd(query, key1, sum1[r]);
    }
    if (kBring) {
      __builtin_prefetch(coming, 0, 2);
      coming += kLine;
    }
    keys += 2 * lanes;
    queries += kRows;
  }
}

// Rows of two vectors, `stride` floats apart, to and from registers.
template <int kRows>
HWY_INLINE void AddRows(const float* from, int64_t stride, VF* sum0, VF* sum1) {
  const F d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  ATTENTION_UNROLL
  for (int r = 0; r < kRows; ++r) {
    sum0[r] = hn::Add(sum0[r], hn::LoadU(d, from + r * stride));
    sum1[r] = hn::Add(sum1[r], hn::LoadU(d, from + r * stride + lanes));
  }
}
template <int kRows>
HWY_INLINE void StoreRows(const VF* sum0, const VF* sum1, float* to,
                          int64_t stride) {
  const F d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  ATTENTION_UNROLL
  for (int r = 0; r < kRows; ++r) {
    hn::StoreU(sum0[r], d, to + r * stride);
    hn::StoreU(sum1[r], d, to + r * stride + lanes);
  }
}

// A dot product is summed in pieces of so many steps, each from 0, and so many
// pieces in sums of their own: where one element is much larger than all others
// a score is rounded at its full size some 20 times, not once for every element
// (Higham, "Accuracy and Stability of Numerical Algorithms", 4.2).
inline constexpr int64_t kPieceSteps = 16;
inline constexpr int64_t kSumSteps = 8 * kPieceSteps;

// queries: [width][kRows]; keys: [width][two vectors]; key_addend: two vectors,
// or null; scores: kRows rows of two vectors, kScoreStride floats apart.
// `coming` counts lines.
template <int kRows>
HWY_INLINE void DotPanel(const float* queries, const float* keys, int64_t width,
                         const float* key_addend, const ComingBytes& coming,
                         float* HWY_RESTRICT scores) {
  const F d;
  constexpr int64_t kStride = 2 * static_cast<int64_t>(hn::MaxLanes(d));
  HWY_ALIGN float pieces[kRows * kStride];
  int64_t first = 0;
  do {
    const int64_t last = HWY_MIN(first + kPieceSteps, width);
    const int64_t bringing = HWY_MAX(first, HWY_MIN(coming.count, last));
    VF sum0[kRows];
    VF sum1[kRows];
    ATTENTION_UNROLL
    for (int r = 0; r < kRows; ++r) sum0[r] = sum1[r] = hn::Zero(d);
    DotSteps<kRows, true>(
        queries, keys, first, bringing,
        bringing > first ? coming.data + first * kLine : nullptr, sum0, sum1);
    DotSteps<kRows, false>(queries, keys, bringing, last, nullptr, sum0, sum1);
    if (first % kSumSteps != 0) AddRows<kRows>(pieces, kStride, sum0, sum1);
    if (last % kSumSteps != 0 && last < width) {
      StoreRows<kRows>(sum0, sum1, pieces, kStride);
    } else {
      if (first >= kSumSteps) AddRows<kRows>(scores, kScoreStride, sum0, sum1);
      if (last == width && key_addend != nullptr) {
        AddRows<kRows>(key_addend, 0, sum0, sum1);
      }
      StoreRows<kRows>(sum0, sum1, scores, kScoreStride);
    }
    first = last;
  } while (first < width);
}

// - sum (q - k)^2
template <int kRows>
HWY_INLINE void DifferencePanel(const float* HWY_RESTRICT queries,
                                const float* HWY_RESTRICT keys, int64_t width,
                                float* HWY_RESTRICT scores) {
  const F d;
  const size_t lanes = hn::Lanes(d);
  VF sum0[kRows];
  VF sum1[kRows];
  ATTENTION_UNROLL
  for (int r = 0; r < kRows; ++r) sum0[r] = sum1[r] = hn::Zero(d);
  for (int64_t i = 0; i < width; ++i) {
    const VF key0 = hn::Load(d, keys);
    const VF key1 = hn::Load(d, keys + lanes);
    ATTENTION_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const VF query = hn::Set(d, queries[r]);
      const VF difference0 = hn::Sub(query, key0);
      const VF difference1 = hn::Sub(query, key1);
      sum0[r] = hn::NegMulAdd(difference0, difference0, sum0[r]);
      sum1[r] = hn::NegMulAdd(difference1, difference1, sum1[r]);
    }
    keys += 2 * lanes;
    queries += kRows;
  }
  ATTENTION_UNROLL
  for (int r = 0; r < kRows; ++r) {
    hn::StoreU(sum0[r], d, scores + r * kScoreStride);
    hn::StoreU(sum1[r], d, scores + r * kScoreStride + lanes);
  }
}

// sum + n / x, the quotient within 2^-23.
HWY_INLINE VF AddQuotient(VF n, VF x, VF sum) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  // A step of Newton's from 14 bits is shorter than a division of 16 lanes.
  const F d;
  const VF guess{_mm512_rcp14_ps(x.raw)};
  const VF error = hn::NegMulAdd(x, guess, hn::Set(d, 1.0F));
  return hn::MulAdd(n, hn::MulAdd(guess, error, guess), sum);
#else
  return hn::Add(sum, hn::Div(n, x));
#endif
}

// A sum of fractions with one denominator.
struct Fraction {
  VF numerator;
  VF denominator;
};

HWY_INLINE Fraction AddFractions(const Fraction& a, const Fraction& b) {
  return {hn::MulAdd(a.numerator, b.denominator,
                     hn::Mul(b.numerator, a.denominator)),
          hn::Mul(a.denominator, b.denominator)};
}

// sum_i w[i] / (q[i] k[i] + 1), kTerms terms to a division, kTerms 2 or 4.
template <int kRows, int kTerms>
HWY_INLINE void TanhPanel(const float* HWY_RESTRICT queries,
                          const float* HWY_RESTRICT keys, int64_t width,
                          const float* HWY_RESTRICT weights,
                          float* HWY_RESTRICT scores) {
  const F d;
  const size_t lanes = hn::Lanes(d);
  const VF one = hn::Set(d, 1.0F);
  for (size_t half = 0; half < 2; ++half) {
    VF sum[kRows];
    ATTENTION_UNROLL
    for (int r = 0; r < kRows; ++r) sum[r] = hn::Zero(d);
    const float* k = keys + half * lanes;
    const float* q = queries;
    int64_t i = 0;
    for (; i + kTerms <= width; i += kTerms) {
      ATTENTION_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const auto term = [&](int n) HWY_ATTR {
          const VF key = hn::Load(d, k + static_cast<size_t>(2 * n) * lanes);
          return Fraction{hn::Set(d, weights[i + n]),
                          hn::MulAdd(hn::Set(d, q[n * kRows + r]), key, one)};
        };
        Fraction f = AddFractions(term(0), term(1));
        if constexpr (kTerms == 4) {
          f = AddFractions(f, AddFractions(term(2), term(3)));
        }
        sum[r] = AddQuotient(f.numerator, f.denominator, sum[r]);
      }
      k += size_t{kTerms} * 2 * lanes;
      q += int64_t{kTerms} * kRows;
    }
    for (; i < width; ++i) {
      const VF key = hn::Load(d, k);
      const VF weight = hn::Set(d, weights[i]);
      for (int r = 0; r < kRows; ++r) {
        const VF x = hn::MulAdd(hn::Set(d, q[r]), key, one);
        sum[r] = AddQuotient(weight, x, sum[r]);
      }
      k += 2 * lanes;
      q += kRows;
    }
    for (int r = 0; r < kRows; ++r) {
      hn::StoreU(sum[r], d, scores + r * kScoreStride + half * lanes);
    }
  }
}

// The same sum where exponentials of the projections would overflow or lose too
// much: 1 / (e^(2t) + 1) = (1 - tanh(t)) / 2 with t = (q + k) of two parts
// each, interleaved: high, low.
template <int kRows>
HWY_NOINLINE void TanhExactPanel(const float* queries, const float* keys,
                                 int64_t width, const float* weights,
                                 float* scores) {
  const F d;
  const size_t lanes = hn::Lanes(d);
  const VF half_one = hn::Set(d, 0.5F);
  for (size_t half = 0; half < 2; ++half) {
    for (int r = 0; r < kRows; ++r) {
      VF sum = hn::Zero(d);
      const float* k = keys + half * lanes;
      const float* q = queries + r;
      for (int64_t i = 0; i < width; i += 2) {
        const VF high = hn::Add(hn::Set(d, q[0]), hn::Load(d, k));
        const VF low =
            hn::Add(hn::Set(d, q[kRows]), hn::Load(d, k + 2 * lanes));
        const VF tanh = Tanh(hn::Add(high, low));
        sum = hn::MulAdd(hn::Set(d, weights[i / 2]),
                         hn::NegMulAdd(half_one, tanh, half_one), sum);
        k += 4 * lanes;
        q += int64_t{2} * kRows;
      }
      hn::StoreU(sum, d, scores + r * kScoreStride + half * lanes);
    }
  }
}

template <int kRows>
HWY_INLINE void ScorePanel(const TileArgs& args, int64_t first_row,
                           int64_t column, const ComingBytes& coming,
                           float* scores) {
  const int64_t width = args.score_width;
  const float* queries = args.queries + first_row * width;
  const float* keys = args.packed_keys + column * width;
  switch (args.score) {
    case Score::kDot:
      return DotPanel<kRows>(queries, keys, width,
                             args.epilogue.key_addend == nullptr
                                 ? nullptr
                                 : args.epilogue.key_addend + column,
                             coming, scores);
    case Score::kDifference:
      return DifferencePanel<kRows>(queries, keys, width, scores);
    case Score::kTanh:
      return TanhPanel<kRows, 2>(queries, keys, width, args.tanh_weights,
                                 scores);
    case Score::kTanhSmall:
      return TanhPanel<kRows, 4>(queries, keys, width, args.tanh_weights,
                                 scores);
    case Score::kTanhExact:
      return TanhExactPanel<kRows>(queries, keys, width, args.tanh_weights,
                                   scores);
  }
}

}  // namespace attention::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
// NOLINTEND(misc-definitions-in-headers)

#endif  // include guard
