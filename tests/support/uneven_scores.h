#ifndef ATTENTION_TESTS_SUPPORT_UNEVEN_SCORES_H_
#define ATTENTION_TESTS_SUPPORT_UNEVEN_SCORES_H_

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "tests/support/owned_problem.h"

namespace attention::test {

/// A problem whose scores are sums of numbers large beside what tells them
/// apart: dot products with one large term or with terms of one sign, and
/// Gaussian scores of queries and keys far from the origin or from each other.
struct UnevenScores {
  std::string name;  // of letters, digits and underscores
  std::function<OwnedProblem()> make;
  /// FP16 products of one sign, without weights, of widths that tensor cores
  /// serve: their sums cut off what FP32 rounds, and that adds up.
  bool of_tensor_cores = false;

  friend void PrintTo(const UnevenScores& scores, std::ostream* out) {
    *out << scores.name;
  }
};

/// All of them: one head, 32 queries, 64 keys, values of width 8.
std::vector<UnevenScores> AllUnevenScores();

}  // namespace attention::test

#endif  // ATTENTION_TESTS_SUPPORT_UNEVEN_SCORES_H_
