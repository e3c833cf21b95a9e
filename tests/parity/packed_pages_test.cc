// Packed batches with every option, their keys in one tensor, brought by each
// entry, or in pages: against the oracle, and the bits of an entry alone.

#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/parity/backend_test.h"
#include "tests/support/factors.h"
#include "tests/support/own_keys.h"
#include "tests/support/packed_entries.h"
#include "tests/support/packed_problem.h"
#include "tests/support/random.h"

namespace attention::test {
namespace {

using S = ProblemSpec;

// Steps of decoding, of which one is split; prefill, of which one has several
// blocks of rows; both, beside entries that lack queries or keys.
const std::vector<EntryLengths> kLengths[] = {
    {{1, 1}, {1, 70}, {2, 2100}},
    {{37, 90}, {270, 40}, {5, 600}},
    {{3, 6}, {0, 7}, {40, 130}, {7, 0}, {1, 300}}};

// What a packed batch may have, and which of kLengths as its query_length.
const std::vector<Factor>& PackedFactors() {
  static const auto* const kFactors = [] {
    auto* const factors = new std::vector<Factor>;
    for (Factor& factor : OptionFactors()) {
      if (factor.name == "attend_mask" || factor.name == "bias") continue;
      factors->push_back(std::move(factor));
    }
    factors->push_back(Extents<&S::query_length, 0, 1, 2>("lengths"));
    factors->push_back(Extents<&S::width, 1, 17, 32>("Dq"));
    factors->push_back(Extents<&S::value_width, 7, 16>("Dv"));
    factors->push_back(
        Extents<&S::keys_per_block, -1, 0, 1, 16, 100>("keys per page"));
    return factors;
  }();
  return *kFactors;
}

const std::vector<std::vector<int>>& Rows() {
  static const auto* const kRows =
      new std::vector<std::vector<int>>(PairwiseRows(PackedFactors()));
  return *kRows;
}

// Parameter: backend, row of the covering array.
using PackedPagesTest =
    ::testing::TestWithParam<std::tuple<std::string, size_t>>;

TEST_P(PackedPagesTest, MatchTheOracleAndEntriesAlone) {
  const auto& [backend, row] = GetParam();
  SCOPED_TRACE(absl::StrCat("ATTENTION_TEST_SEED=", TestSeed()));
  SCOPED_TRACE(Describe(PackedFactors(), Rows()[row]));
  ProblemSpec spec = SpecFor(backend, SpecOf(PackedFactors(), Rows()[row]));
  const auto& lengths = kLengths[static_cast<size_t>(spec.query_length)];
  const int64_t page = spec.keys_per_block;  // below 0: all in one tensor
  MakePackable(spec);
  const PackedProblem all =
      MakePackedProblem(spec, lengths, TestSeed() + 10 * row);
  const auto engine = MakeEngine(backend);
  const AttentionProblem problem = WithoutRefused(*engine, all.packed.problem);
  ASSERT_OK_AND_ASSIGN(
      const Results results,
      RunOn(*engine, page < 0 ? problem : WithOwnKeys(problem, page)));
  EXPECT_TRUE(
      MatchesEntries(problem, ComputeExpectedOfEntries(problem), results));
  if (spec.dropout.training) return;  // it counts entries
  for (int64_t n = 0; n < EntriesOf(problem); ++n) {
    ASSERT_OK_AND_ASSIGN(const Results alone,
                         RunOn(*engine, EntryOf(problem, n)));
    EXPECT_TRUE(SameBits(ResultsOfEntry(problem, n, results), alone))
        << "entry " << n;
  }
}

INSTANTIATE_TEST_SUITE_P(Differential, PackedPagesTest,
                         ::testing::Combine(::testing::ValuesIn(HostBackends()),
                                            ::testing::Range(size_t{0},
                                                             Rows().size())),
                         [](const auto& param) {
                           return absl::StrCat(std::get<0>(param.param), "_row",
                                               std::get<1>(param.param));
                         });

}  // namespace
}  // namespace attention::test
