#ifndef ATTENTION_TESTS_SUPPORT_ORACLE_H_
#define ATTENTION_TESTS_SUPPORT_ORACLE_H_

#include <array>
#include <cstdint>
#include <vector>

#include "core/problem.h"

namespace attention::test {

/// What a problem's answer must be, in FP64, and what its tolerances are made
/// of. Row-major over (B, Hq, Lq, ...) whatever the problem's rank.
struct Expected {
  int64_t batch = 0;
  int64_t query_heads = 0;
  int64_t query_length = 0;
  int64_t key_length = 0;
  int64_t value_width = 0;

  std::vector<double> output = {};  // (B, Hq, Lq, Dv)
  std::vector<double> weights =
      {};                        // (B, Hq, Lq, Lk), those that were asked for
  std::vector<double> lse = {};  // (B, Hq, Lq)

  std::vector<double> weighted = {};  // per output element: sum_j w_j |v_j|
  std::vector<double> reach = {};  // per output element: sum_j |v_j|, w_j not 0
  std::vector<double> kappa =
      {};  // per row: its largest sum of |terms| of a score
};

/// Computes a valid problem by nested loops over its elements, from the numeric
/// contract alone: nothing of it is shared with any backend.
Expected ComputeExpected(const AttentionProblem& problem);

/// Philox4x32-10, written from the paper.
std::array<uint32_t, 4> OraclePhilox(std::array<uint32_t, 4> counter,
                                     std::array<uint32_t, 2> key);

}  // namespace attention::test

#endif  // ATTENTION_TESTS_SUPPORT_ORACLE_H_
