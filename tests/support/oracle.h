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

  std::vector<double> output = {};   // (B, Hq, Lq, Dv)
  std::vector<double> weights = {};  // (B, Hq, Lq, Lk), those asked for
  std::vector<double> lse = {};      // (B, Hq, Lq)
  std::vector<double> scores = {};   // (B, Hq, Lq, Lk), of the stage asked for

  // Weights before dropout, which top_k and key_weights are made of, and
  // whether the key takes part in the row: (B, Hq, Lq, Lk).
  std::vector<double> undropped = {};
  std::vector<bool> counts = {};
  // Per score: its own kappa, what it may be off besides, and whether it may be
  // anything.
  std::vector<double> score_kappa = {};
  std::vector<double> score_lost = {};
  std::vector<bool> score_overflows = {};
  // Per weight: the key takes part in the row, however little it weighs.
  std::vector<bool> takes_part = {};
  // Per output element: sum_j w_j |v_j|, and the sum and the largest of the
  // |v_j| that take part.
  std::vector<double> weighted = {};
  std::vector<double> reach = {};
  std::vector<double> largest = {};
  // Per row: kappa of the contract's tolerances, and by how much a score may be
  // off because something in it is below 2^-126 and counts as 0.
  std::vector<double> kappa = {};
  std::vector<double> lost = {};
  // Per row: its head has a sink, of which the sum of its weights depends.
  std::vector<bool> has_sink = {};
  // Rows and output elements that may be anything: FP32 may overflow on the way
  // to them.
  std::vector<bool> row_overflows = {};
  std::vector<bool> output_overflows = {};
  double largest_weight = 1;  // what dropout makes of a weight of 1
};

/// Computes a valid problem by nested loops over its elements, from the numeric
/// contract alone: nothing of it is shared with any backend. `first_batch`: as
/// which batch entry dropout counts its first.
Expected ComputeExpected(const AttentionProblem& problem,
                         int64_t first_batch = 0);

/// Philox4x32-10, written from the paper.
std::array<uint32_t, 4> OraclePhilox(std::array<uint32_t, 4> counter,
                                     std::array<uint32_t, 2> key);

}  // namespace attention::test

#endif  // ATTENTION_TESTS_SUPPORT_ORACLE_H_
