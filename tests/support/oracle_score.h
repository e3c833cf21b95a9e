#ifndef ATTENTION_TESTS_SUPPORT_ORACLE_SCORE_H_
#define ATTENTION_TESTS_SUPPORT_ORACLE_SCORE_H_

#include <cstdint>
#include <vector>

#include "core/problem.h"

namespace attention::test {

/// One element, widened to FP64: FP32, FP16, BF16, INT32, INT64, BOOL, UINT8.
double ReadElement(DataType type, const std::byte* address);

/// Element (b, h, i, x) of a tensor of a problem of rank 2 to 4, where absent
/// extents and extents of 1 are broadcast as in NumPy.
double ReadBroadcast(const TensorView& view, int problem_rank, int64_t b,
                     int64_t h, int64_t i, int64_t x);

/// A scoring function's value and the sum of the magnitudes of its terms.
struct Score {
  double value = 0;
  double magnitude = 0;
};

/// a(q, k) of one query vector and one key vector, for query head `head`.
Score ComputeScore(const Scoring& scoring, int64_t head,
                   const std::vector<double>& q, const std::vector<double>& k);

}  // namespace attention::test

#endif  // ATTENTION_TESTS_SUPPORT_ORACLE_SCORE_H_
