#ifndef ATTENTION_TESTS_SUPPORT_FACTORS_H_
#define ATTENTION_TESTS_SUPPORT_FACTORS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/random_problem.h"

namespace attention::test {

/// One choice for one option.
struct Level {
  std::string name;
  void (*apply)(ProblemSpec& spec);
};

/// One option of a problem with all the choices that are tested, so made that
/// every combination of levels of different factors is a valid problem.
struct Factor {
  std::string name;
  std::vector<Level> levels;
};

/// Every option, shape, layout and kind of data.
const std::vector<Factor>& Factors();

/// The rows of a covering array of all pairs of levels (covering_array.h).
const std::vector<std::vector<int>>& FactorRows();

/// A row's problem, and its levels for a person to read.
ProblemSpec SpecOf(const std::vector<int>& row);
std::string Describe(const std::vector<int>& row);

/// `spec` as `backend` computes it: one with "cuda" in its name leaves keys of
/// another type than queries to the next one, and is given the query's.
ProblemSpec SpecFor(const std::string& backend, ProblemSpec spec);

/// The same of factors other than Factors().
std::vector<std::vector<int>> PairwiseRows(const std::vector<Factor>& factors);
ProblemSpec SpecOf(const std::vector<Factor>& factors,
                   const std::vector<int>& row);
std::string Describe(const std::vector<Factor>& factors,
                     const std::vector<int>& row);

/// Those of Factors() that are no sizes.
std::vector<Factor> OptionFactors();

/// Sizes as a factor: one level for each.
template <int64_t ProblemSpec::*Extent, int64_t... Sizes>
Factor Extents(const char* name) {
  return {name, {{std::to_string(Sizes), [](ProblemSpec& spec) {
                    spec.*Extent = Sizes;
                  }}...}};
}

}  // namespace attention::test

#endif  // ATTENTION_TESTS_SUPPORT_FACTORS_H_
