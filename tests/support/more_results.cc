#include "tests/support/more_results.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "tests/support/oracle_score.h"
#include "tests/support/tolerance.h"

namespace attention::test {
namespace {

using ::testing::AssertionFailure;
using ::testing::AssertionResult;
using ::testing::AssertionSuccess;

constexpr double kEps32 = 0x1p-24;

// A row's largest weights against all that it has.
class TopKRow {
 public:
  TopKRow(const Expected& expected, const std::vector<double>& tolerances,
          size_t row, const int64_t* keys, const double* weights, size_t k)
      : expected_(expected),
        tolerances_(tolerances),
        row_(row),
        keys_(keys),
        weights_(weights),
        k_(k) {}

  AssertionResult Check() const {
    AssertionResult check = KeysAreKeys();
    if (check) check = AreInOrder();
    if (!check || expected_.row_overflows[row_]) return check;
    check = AreAsManyAsTakePart();
    if (check) check = WeighWhatTheyWeigh();
    return check ? NoneWasLeftOut() : check;
  }

 private:
  size_t At(int64_t key) const {
    return row_ * static_cast<size_t>(expected_.key_length) +
           static_cast<size_t>(key);
  }
  AssertionResult Fail(size_t n) const {
    return AssertionFailure()
           << "top_k of row " << row_ << "[" << n << "] is key " << keys_[n]
           << " with weight " << weights_[n] << ", ";
  }

  AssertionResult KeysAreKeys() const {
    std::vector<bool> seen(static_cast<size_t>(expected_.key_length));
    for (size_t n = 0; n < k_; ++n) {
      if (keys_[n] == -1) {
        if (weights_[n] != 0) return Fail(n) << "expected 0";
        continue;
      }
      if (keys_[n] < 0 || keys_[n] >= expected_.key_length) {
        return Fail(n) << "which is none";
      }
      if (seen[static_cast<size_t>(keys_[n])]) return Fail(n) << "seen before";
      seen[static_cast<size_t>(keys_[n])] = true;
    }
    return AssertionSuccess();
  }

  AssertionResult AreInOrder() const {
    for (size_t n = 1; n < k_; ++n) {
      if (keys_[n] == -1) continue;
      const bool nan = std::isnan(weights_[n]) && std::isnan(weights_[n - 1]);
      const bool equal = nan || weights_[n] == weights_[n - 1];
      if (keys_[n - 1] == -1 || (equal && keys_[n] < keys_[n - 1]) ||
          (!equal && !(weights_[n] < weights_[n - 1]) &&
           !std::isnan(weights_[n - 1]))) {
        return Fail(n) << "behind key " << keys_[n - 1] << " with "
                       << weights_[n - 1];
      }
    }
    return AssertionSuccess();
  }

  AssertionResult AreAsManyAsTakePart() const {
    size_t part = 0;
    for (int64_t key = 0; key < expected_.key_length; ++key) {
      if (expected_.counts[At(key)]) ++part;
    }
    const auto found = static_cast<size_t>(
        std::count_if(keys_, keys_ + k_, [](int64_t key) { return key >= 0; }));
    if (found == std::min(k_, part)) return AssertionSuccess();
    return AssertionFailure() << "top_k of row " << row_ << " has " << found
                              << " keys, of " << part << " that take part";
  }

  AssertionResult WeighWhatTheyWeigh() const {
    for (size_t n = 0; n < k_ && keys_[n] != -1; ++n) {
      const size_t at = At(keys_[n]);
      if (!expected_.counts[at]) return Fail(n) << "which takes no part";
      AssertionResult check =
          IsWithin("top_k", {&weights_[n], 1}, {&expected_.undropped[at], 1},
                   {&tolerances_[at], 1});
      if (!check) return Fail(n) << check.message();
    }
    return AssertionSuccess();
  }

  AssertionResult NoneWasLeftOut() const {
    if (keys_[k_ - 1] == -1) return AssertionSuccess();
    const double least = weights_[k_ - 1];
    const double room = tolerances_[At(keys_[k_ - 1])];
    for (int64_t key = 0; key < expected_.key_length; ++key) {
      if (std::find(keys_, keys_ + k_, key) != keys_ + k_) continue;
      const double weight = expected_.undropped[At(key)];
      if (weight > least + room + tolerances_[At(key)]) {
        return AssertionFailure()
               << "top_k of row " << row_ << " lacks key " << key
               << " with weight " << weight << ", the least is " << least;
      }
    }
    return AssertionSuccess();
  }

  const Expected& expected_;
  const std::vector<double>& tolerances_;
  size_t row_;
  const int64_t* keys_;
  const double* weights_;
  size_t k_;
};

// Where a row's weights were returned as well.
AssertionResult AreTheWeights(const std::vector<double>& weights, size_t row,
                              int64_t keys, const int64_t* top_keys,
                              const std::vector<double>& top_weights) {
  for (size_t n = 0; n < top_weights.size() && top_keys[n] != -1; ++n) {
    const double weight = weights[row * static_cast<size_t>(keys) +
                                  static_cast<size_t>(top_keys[n])];
    if (weight == top_weights[n]) continue;
    if (std::isnan(weight) && std::isnan(top_weights[n])) continue;
    return AssertionFailure()
           << "top_k of row " << row << " has " << top_weights[n] << " for key "
           << top_keys[n] << ", the weight is " << weight;
  }
  return AssertionSuccess();
}

AssertionResult TopKMatches(const AttentionProblem& problem,
                            const Expected& expected, const Results& results) {
  const int64_t k = *problem.wanted.top_k;
  const Shape shape = {expected.batch, expected.query_heads,
                       expected.query_length, k};
  const int rank = problem.query.rank();
  AssertionResult check = HasShape("top_k_indices", *results.top_k_indices,
                                   DataType::kInt64, shape, rank);
  if (!check) return check;
  check = HasShape("top_k_weights", *results.top_k_weights, DataType::kFloat32,
                   shape, rank);
  if (!check) return check;
  const auto* keys =
      reinterpret_cast<const int64_t*>(results.top_k_indices->data());
  const std::vector<double> weights = results.top_k_weights->ToDoubles();
  const std::vector<double> tolerances = UndroppedTolerances(expected);
  const bool compares =
      results.weights && !problem.wanted.weights_after_dropout;
  const std::vector<double> all =
      compares ? results.weights->ToDoubles() : std::vector<double>();
  const auto count = static_cast<size_t>(k);
  for (size_t row = 0; row < expected.lse.size() && check; ++row) {
    const size_t at = row * count;
    check = TopKRow(expected, tolerances, row, keys + at, &weights[at], count)
                .Check();
    if (!check || !compares) continue;
    check =
        AreTheWeights(all, row, expected.key_length, keys + at,
                      {weights.begin() + static_cast<ptrdiff_t>(at),
                       weights.begin() + static_cast<ptrdiff_t>(at + count)});
  }
  return check;
}

// Sums of so many terms of one sign, in FP32.
AssertionResult KeyWeightsMatch(const AttentionProblem& problem,
                                const Expected& expected,
                                const Results& results) {
  const int64_t heads = expected.batch * expected.query_heads;
  const int64_t keys = expected.key_length;
  const int64_t rows = expected.query_length;
  const double growth = std::max(1.0, std::sqrt(static_cast<double>(rows)) / 4);
  const std::vector<double> of_weights = UndroppedTolerances(expected);
  std::vector<double> sums(static_cast<size_t>(heads * keys));
  std::vector<double> tolerances(sums.size());
  for (int64_t n = 0; n < heads * keys; ++n) {
    double& sum = sums[static_cast<size_t>(n)];
    double& tolerance = tolerances[static_cast<size_t>(n)];
    bool anything = false;
    for (int64_t row = n / keys * rows; row < (n / keys + 1) * rows; ++row) {
      const auto at = static_cast<size_t>(row * keys + n % keys);
      sum += expected.undropped[at];
      anything = anything || of_weights[at] == kAnything;
      tolerance += of_weights[at];
    }
    tolerance += kToleranceFactor * kEps32 * growth * sum;
    if (anything) tolerance = kAnything;
  }
  // One dimension less than a tensor of rows.
  Shape shape = {expected.batch, expected.query_heads, keys};
  if (problem.query.rank() == 3) shape = {expected.batch, keys};
  if (problem.query.rank() == 2) shape = {keys};
  AssertionResult check = HasShape("key_weights", *results.key_weights,
                                   DataType::kFloat32, shape, 4);
  return check ? IsWithin("key_weights", results.key_weights->ToDoubles(), sums,
                          tolerances)
               : check;
}

AssertionResult ScoresMatch(const AttentionProblem& problem,
                            const Expected& expected, const Results& results) {
  AssertionResult check =
      HasShape("scores", *results.scores, DataType::kFloat32,
               {expected.batch, expected.query_heads, expected.query_length,
                expected.key_length},
               problem.query.rank());
  return check ? IsWithin("scores", results.scores->ToDoubles(),
                          expected.scores, ScoreTolerances(expected))
               : check;
}

}  // namespace

AssertionResult MoreMatches(const AttentionProblem& problem,
                            const Expected& expected, const Results& results) {
  const WantedOutputs& wanted = problem.wanted;
  if (results.top_k_indices.has_value() != wanted.top_k.has_value() ||
      results.top_k_weights.has_value() != wanted.top_k.has_value() ||
      results.key_weights.has_value() != wanted.key_weights ||
      results.scores.has_value() != wanted.scores.has_value()) {
    return AssertionFailure() << "not the results asked for";
  }
  AssertionResult check = AssertionSuccess();
  if (wanted.top_k) check = TopKMatches(problem, expected, results);
  if (check && wanted.key_weights) {
    check = KeyWeightsMatch(problem, expected, results);
  }
  if (check && wanted.scores) check = ScoresMatch(problem, expected, results);
  return check;
}

}  // namespace attention::test
