// QK, a function for every scoring function: a micro-tile of queries against a
// panel of keys, with all sums in registers. Included once per instruction set.
#if defined(ATTENTION_CORE_CPU_KERNELS_QK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTENTION_CORE_CPU_KERNELS_QK_INL_H_
#undef ATTENTION_CORE_CPU_KERNELS_QK_INL_H_
#else
#define ATTENTION_CORE_CPU_KERNELS_QK_INL_H_
#endif

#include "core/cpu/kernels/epilogue-inl.h"
#include "core/cpu/kernels/math-inl.h"
#include "core/cpu/kernels/pack-inl.h"
#include "core/cpu/kernels/prefetch-inl.h"
#include "core/cpu/kernels/tile_args.h"
#include "hwy/highway.h"

// Compiled once per instruction set, into a namespace of its own each time.
// NOLINTBEGIN(misc-definitions-in-headers)
HWY_BEFORE_NAMESPACE();
namespace attention::cpu::HWY_NAMESPACE {

// Steps first ... last - 1 of a dot product of kRows queries and kVectors
// vectors of a panel of keys. kPrefetch: each of them asks for the next line of
// what comes, into the second cache, for the first one is full of the tile.
template <int kRows, int kVectors, bool kPrefetch>
HWY_INLINE void DotSteps(const float* HWY_RESTRICT queries,
                         const float* HWY_RESTRICT keys, int64_t first,
                         int64_t last, const unsigned char* coming,
                         VF (*sums)[kVectors]) {
  const F d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  keys += 2 * first * lanes;
  queries += first * kRows;
  for (int64_t i = first; i < last; ++i) {
    VF key[kVectors];
    ATTENTION_UNROLL
    for (int v = 0; v < kVectors; ++v) key[v] = hn::Load(d, keys + v * lanes);
    ATTENTION_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const VF query = hn::Set(d, queries[r]);
      ATTENTION_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        sums[r][v] = hn::MulAdd(query, key[v], sums[r][v]);
      }
    }
    if (kPrefetch) {
      __builtin_prefetch(coming, 0, 2);
      coming += kLine;
    }
    keys += 2 * lanes;
    queries += kRows;
  }
}

// queries: [width][kRows]; keys: [width][two vectors]; key_addend: two vectors,
// or null; scores: kRows rows of kVectors vectors, kScoreStride floats apart.
// `prefetch` counts lines.
template <int kRows, int kVectors>
HWY_INLINE void DotPanel(const float* queries, const float* keys, int64_t width,
                         const float* key_addend, const PrefetchRange& prefetch,
                         float* HWY_RESTRICT scores) {
  const F d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  VF sums[kRows][kVectors];
  ATTENTION_UNROLL
  for (int r = 0; r < kRows; ++r) {
    ATTENTION_UNROLL
    for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::Zero(d);
  }
  const int64_t fetching = HWY_MIN(prefetch.bytes, width);
  DotSteps<kRows, kVectors, true>(queries, keys, 0, fetching, prefetch.data,
                                  sums);
  DotSteps<kRows, kVectors, false>(queries, keys, fetching, width, nullptr,
                                   sums);
  if (HWY_UNLIKELY(key_addend != nullptr)) {
    ATTENTION_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const VF addend = hn::LoadU(d, key_addend + v * lanes);
      ATTENTION_UNROLL
      for (int r = 0; r < kRows; ++r) sums[r][v] = hn::Add(sums[r][v], addend);
    }
  }
  ATTENTION_UNROLL
  for (int v = 0; v < kVectors; ++v) {
    ATTENTION_UNROLL
    for (int r = 0; r < kRows; ++r) {
      hn::StoreU(sums[r][v], d, scores + r * kScoreStride + v * lanes);
    }
  }
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

// The scores of kRows queries and a panel of keys as sums of terms that are
// fractions w / (e + 1), e = e^(2 (q + k)), with one division to four of them.
// Denominators are at most 2^30, where the fraction is as good as 0, so that
// products of four are finite.
// term(i, half, r) is the fraction of hidden unit i.
template <int kRows, class Term>
HWY_INLINE void FractionPanel(int64_t width, const Term& term,
                              float* HWY_RESTRICT scores) {
  const F d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t half = 0; half < 2; ++half) {
    VF sum[kRows];
    ATTENTION_UNROLL
    for (int r = 0; r < kRows; ++r) sum[r] = hn::Zero(d);
    int64_t i = 0;
    for (; i + 4 <= width; i += 4) {
      ATTENTION_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const Fraction f = AddFractions(
            AddFractions(term(i, half, r), term(i + 1, half, r)),
            AddFractions(term(i + 2, half, r), term(i + 3, half, r)));
        sum[r] = AddQuotient(f.numerator, f.denominator, sum[r]);
      }
    }
    for (; i < width; ++i) {
      for (int r = 0; r < kRows; ++r) {
        const Fraction f = term(i, half, r);
        sum[r] = AddQuotient(f.numerator, f.denominator, sum[r]);
      }
    }
    ATTENTION_UNROLL
    for (int r = 0; r < kRows; ++r) {
      hn::StoreU(sum[r], d, scores + r * kScoreStride + half * lanes);
    }
  }
}

// sum_i w[i] / (q[i] k[i] + 1).
template <int kRows>
HWY_INLINE void TanhPanel(const float* HWY_RESTRICT queries,
                          const float* HWY_RESTRICT keys, int64_t width,
                          const float* HWY_RESTRICT weights,
                          float* HWY_RESTRICT scores) {
  const F d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const VF one = hn::Set(d, 1.0F);
  const VF most = hn::Set(d, 0x1p30F);
  FractionPanel<kRows>(
      width,
      [=](int64_t i, int64_t half, int r) HWY_ATTR {
        const VF key = hn::Load(d, keys + (2 * i + half) * lanes);
        const VF query = hn::Set(d, queries[i * kRows + r]);
        return Fraction{hn::Set(d, weights[i]),
                        AtMost(most, hn::MulAdd(query, key, one))};
      },
      scores);
}

// The same for any projections: numbers are pairs m, n that stand for m 2^n.
template <int kRows>
HWY_NOINLINE void TanhWidePanel(const float* HWY_RESTRICT queries,
                                const float* HWY_RESTRICT keys, int64_t width,
                                const float* HWY_RESTRICT weights,
                                float* HWY_RESTRICT scores) {
  const F d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const VF one = hn::Set(d, 1.0F);
  const VF most = hn::Set(d, 0x1p30F);
  FractionPanel<kRows>(
      width,
      [=](int64_t i, int64_t half, int r) HWY_ATTR {
        const float* const key = keys + (4 * i + half) * lanes;
        const float* const query = queries + 2 * i * kRows + r;
        const VF n =
            hn::Add(hn::Set(d, query[kRows]), hn::Load(d, key + 2 * lanes));
        const VF m = ScaleByPower(hn::Set(d, query[0]), n);
        return Fraction{hn::Set(d, weights[i]),
                        AtMost(most, hn::MulAdd(m, hn::Load(d, key), one))};
      },
      scores);
}

// Scores of the panel of keys that begins at `column`, or, where no more than a
// vector of them is wanted, at least of that many.
template <int kRows>
HWY_INLINE void ScorePanel(const PackedOperands& packed, int64_t first_row,
                           int64_t column, int64_t wanted,
                           const PrefetchRange& prefetch, float* scores) {
  const int64_t width = packed.width;
  const int64_t floats = packed.score == Score::kTanhWide ? 2 * width : width;
  const float* queries = packed.queries + first_row * floats;
  const float* keys = packed.keys + column * floats;
  switch (packed.score) {
    case Score::kDot: {
      const float* const addend =
          packed.key_addend == nullptr ? nullptr : packed.key_addend + column;
      if (wanted <= static_cast<int64_t>(hn::Lanes(F()))) {
        return DotPanel<kRows, 1>(queries, keys, width, addend, prefetch,
                                  scores);
      }
      return DotPanel<kRows, 2>(queries, keys, width, addend, prefetch, scores);
    }
    case Score::kDifference:
      return DifferencePanel<kRows>(queries, keys, width, scores);
    case Score::kTanh:
      return TanhPanel<kRows>(queries, keys, width, packed.tanh_weights,
                              scores);
    case Score::kTanhWide:
      return TanhWidePanel<kRows>(queries, keys, width, packed.tanh_weights,
                                  scores);
  }
}

// to[r] += from[r], kRows rows of `count` floats, kScoreStride apart.
template <int kRows>
HWY_INLINE void AddScores(const float* from, int64_t count, float* to) {
  const F d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int r = 0; r < kRows; ++r) {
    for (int64_t c = 0; c < count; c += lanes) {
      const int64_t at = r * kScoreStride + c;
      hn::StoreU(hn::Add(hn::LoadU(d, to + at), hn::LoadU(d, from + at)), d,
                 to + at);
    }
  }
}

struct PartialMicroRows {
  const TileArgs& args;
  bool first;

  template <int kRows>
  HWY_NOINLINE void Rows(int64_t first_row) const {
    const int64_t panel = 2 * static_cast<int64_t>(hn::Lanes(F()));
    for (int64_t c = 0; c < args.keys; c += panel) {
      float* const to = args.packed.partial + first_row * kScoreStride + c;
      float* const scores = first ? to : args.scores;
      ScorePanel<kRows>(args.packed, first_row, c, panel, {}, scores);
      if (!first) AddScores<kRows>(scores, panel, to);
    }
  }
};

inline void AddPartialScores(const TileArgs& args, bool first) {
  ForEachMicroTile(args.rows, PartialMicroRows{args, first});
}

// QK of a micro-tile of packed operands, in args.scores.
template <int kRows>
HWY_INLINE void ScorePackedRows(const TileArgs& args, int64_t first_row,
                                const Columns& columns) {
  const int64_t panel = 2 * static_cast<int64_t>(hn::Lanes(F()));
  for (int64_t c = columns.first; c < columns.end; c += panel) {
    ScorePanel<kRows>(args.packed, first_row, c, columns.end - c,
                      ShareOfPrefetch(args, first_row, kRows, c / panel, panel),
                      args.scores + c);
    if (args.packed.partial != nullptr) {
      AddScores<kRows>(args.packed.partial + first_row * kScoreStride + c,
                       panel, args.scores + c);
    }
  }
}

}  // namespace attention::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
// NOLINTEND(misc-definitions-in-headers)

#endif  // include guard
