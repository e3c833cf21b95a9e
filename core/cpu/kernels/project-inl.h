// Projections of queries and keys, their exponentials, and rows around a
// centre. Included once per instruction set.
#if defined(ATTENTION_CORE_CPU_KERNELS_PROJECT_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef ATTENTION_CORE_CPU_KERNELS_PROJECT_INL_H_
#undef ATTENTION_CORE_CPU_KERNELS_PROJECT_INL_H_
#else
#define ATTENTION_CORE_CPU_KERNELS_PROJECT_INL_H_
#endif

#include <cstring>

#include "core/cpu/kernels/arguments.h"
#include "core/cpu/kernels/math-inl.h"
#include "core/cpu/kernels/pack-inl.h"
#include "hwy/highway.h"

// Compiled once per instruction set, into a namespace of its own each time.
// NOLINTBEGIN(misc-definitions-in-headers)
HWY_BEFORE_NAMESPACE();
namespace attention::cpu::HWY_NAMESPACE {

// Rows that share a read of the matrix, two vectors of sums each.
inline constexpr int kProjectRows = kMicroRows > 8 ? 8 : 4;

template <int kRows, int kVectors>
HWY_INLINE void ProjectColumns(const ProjectArgs& args, int64_t first_row,
                               int64_t column) {
  const F d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const float* from = args.from + first_row * args.from_stride;
  float* const to = args.to + first_row * args.to_stride + column;
  VF sums[kRows][kVectors];
  ATTENTION_UNROLL
  for (int r = 0; r < kRows; ++r) {
    ATTENTION_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      sums[r][v] = args.add ? hn::LoadU(d, to + r * args.to_stride + v * lanes)
                            : hn::Zero(d);
    }
  }
  const float* m = args.m + column;
  for (int64_t i = 0; i < args.depth; ++i) {
    // The first rows bring the matrix, the next columns while these are read.
    if (first_row == 0) {
      for (int v = 0; v < kVectors; ++v) {
        __builtin_prefetch(m + (kVectors + v) * lanes, 0, 2);
      }
    }
    VF row[kVectors];
    ATTENTION_UNROLL
    for (int v = 0; v < kVectors; ++v) row[v] = hn::LoadU(d, m + v * lanes);
    ATTENTION_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const VF x = hn::Set(d, from[r * args.from_stride + i]);
      ATTENTION_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        sums[r][v] = hn::MulAdd(x, row[v], sums[r][v]);
      }
    }
    m += args.m_stride;
  }
  ATTENTION_UNROLL
  for (int r = 0; r < kRows; ++r) {
    ATTENTION_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      hn::StoreU(sums[r][v], d, to + r * args.to_stride + v * lanes);
    }
  }
}

template <int kRows>
HWY_INLINE void ProjectRows(const ProjectArgs& args, int64_t first_row) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(F()));
  int64_t c = 0;
  if constexpr (kRows == 1) {  // reads the matrix in longer stretches
    for (; c + 8 * lanes <= args.columns; c += 8 * lanes) {
      ProjectColumns<kRows, 8>(args, first_row, c);
    }
  }
  for (; c + 2 * lanes <= args.columns; c += 2 * lanes) {
    ProjectColumns<kRows, 2>(args, first_row, c);
  }
  if (c < args.columns) ProjectColumns<kRows, 1>(args, first_row, c);
}

inline void Project(const ProjectArgs& args) {
  int64_t r = 0;
  for (; r + kProjectRows <= args.rows; r += kProjectRows) {
    ProjectRows<kProjectRows>(args, r);
  }
  for (; r < args.rows; ++r) ProjectRows<1>(args, r);
}

// Squares in FP64: a score is the difference of numbers of which this is one,
// and may be smaller than they are.
using D = hn::Repartition<double, F>;
HWY_INLINE hn::Vec<D> AddSquares(VF x, hn::Vec<D> sum) {
  const D d;
  const hn::Half<F> half;
  const auto low = hn::PromoteTo(d, hn::LowerHalf(half, x));
  const auto high = hn::PromoteTo(d, hn::UpperHalf(half, x));
  return hn::MulAdd(low, low, hn::MulAdd(high, high, sum));
}

inline void CentreRows(const CentreArgs& args) {
  const F d;
  const D dd;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t r = 0; r < args.rows; ++r) {
    const float* from = args.from + r * args.from_stride;
    float* to = args.to + r * args.to_stride;
    hn::Vec<D> sum0 = hn::Zero(dd);
    hn::Vec<D> sum1 = sum0;
    int64_t i = 0;
    for (; i + 2 * lanes <= args.width; i += 2 * lanes) {
      const VF x0 =
          hn::Sub(hn::LoadU(d, from + i), hn::LoadU(d, args.centre + i));
      const VF x1 = hn::Sub(hn::LoadU(d, from + i + lanes),
                            hn::LoadU(d, args.centre + i + lanes));
      hn::StoreU(x0, d, to + i);
      hn::StoreU(x1, d, to + i + lanes);
      sum0 = AddSquares(x0, sum0);
      sum1 = AddSquares(x1, sum1);
    }
    double sum = 0;
    for (; i < args.width; ++i) {
      to[i] = from[i] - args.centre[i];
      sum += static_cast<double>(to[i]) * to[i];
    }
    sum += hn::GetLane(hn::SumOfLanes(dd, hn::Add(sum0, sum1)));
    args.squared_norms[r] += sum;
  }
}

inline void ExpTwiceAll(const float* from, int64_t count, float* to) {
  const F d;
  for (int64_t i = 0; i < count; i += static_cast<int64_t>(hn::Lanes(d))) {
    hn::StoreU(ExpTwice(hn::LoadU(d, from + i)), d, to + i);
  }
}

// e^(2 x) = 2^a, a = n + f with n whole: the pair is 2^f, n. Infinities of x
// are those of n.
inline void ExpTwiceWideAll(const float* from, int64_t count, float* to) {
  const F d;
  for (int64_t i = 0; i < count; i += static_cast<int64_t>(hn::Lanes(d))) {
    const VF a =
        hn::Mul(hn::LoadU(d, from + i), hn::Set(d, 2.88539008177792681F));
    const VF n = hn::Round(a);
    const VF f = hn::IfThenZeroElse(hn::IsInf(a), hn::Sub(a, n));
    hn::StoreInterleaved2(PowerOfFraction(f), n, d, to + 2 * i);
  }
}

// Compared as whole numbers, so that NaN is more than infinity.
inline float LargestMagnitude(const float* values, int64_t count) {
  const F d;
  const hn::RebindToSigned<F> di;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto most = hn::Zero(di);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    most = hn::Max(most, hn::BitCast(di, hn::Abs(hn::LoadU(d, values + i))));
  }
  int32_t largest = hn::GetLane(hn::MaxOfLanes(di, most));
  for (; i < count; ++i) {
    int32_t bits;
    memcpy(&bits, values + i, sizeof(bits));
    largest = HWY_MAX(largest, bits & 0x7FFFFFFF);
  }
  float result;
  memcpy(&result, &largest, sizeof(result));
  return result;
}

}  // namespace attention::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
// NOLINTEND(misc-definitions-in-headers)

#endif  // include guard
