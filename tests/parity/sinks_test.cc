// Attention sinks: scores that take part in the sum and have no value.

#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/parity/backend_test.h"
#include "tests/support/random.h"
#include "tests/support/special_numbers.h"

namespace attention::test {
namespace {

using ::testing::Each;
using ::testing::Eq;

using SinksTest = BackendTest;

TensorView AddSinks(const std::vector<double>& sinks, OwnedProblem& owned) {
  return owned.Add(DataType::kFloat32, {static_cast<int64_t>(sinks.size())},
                   Layout::kRowMajor, [&](absl::Span<const int64_t> index) {
                     return sinks[index[0]];
                   });
}

// One for each way through a backend: few and many queries, types, results.
std::vector<ProblemSpec> EveryWay() {
  std::vector<ProblemSpec> specs;
  for (const DataType type : {DataType::kFloat32, DataType::kBFloat16}) {
    for (const int64_t queries : {1, 70}) {
      for (const ScoringKind scoring :
           {ScoringKind::kDotProduct, ScoringKind::kGaussian}) {
        for (const bool weights : {false, true}) {
          specs.push_back({.query_heads = 4,
                           .kv_heads = 2,
                           .query_length = queries,
                           // Keys of one query are split.
                           .key_length = queries == 1 ? 2100 : 150,
                           .width = 17,
                           .type = type,
                           .scoring = scoring,
                           .sigma = 3,
                           .empty_rows = EmptyRows::kUniform,
                           .wanted = {.weights = weights, .lse = true}});
        }
      }
    }
  }
  return specs;
}

TEST_P(SinksTest, MinusInfinityIsNoSink) {
  for (const ProblemSpec& spec : EveryWay()) {
    OwnedProblem owned = MakeProblem(spec, TestSeed());
    ASSERT_OK_AND_ASSIGN(const Results without, Run(owned.problem));
    owned.problem.sinks =
        AddSinks({-kInfinity, -kInfinity, -kInfinity, -kInfinity}, owned);
    ASSERT_OK_AND_ASSIGN(const Results with, Run(owned.problem));
    EXPECT_TRUE(SameBits(without, with));
  }
}

TEST_P(SinksTest, TheLeastSinksTakeNothing) {
  for (const ProblemSpec& spec : EveryWay()) {
    OwnedProblem owned = MakeProblem(spec, TestSeed());
    ASSERT_OK_AND_ASSIGN(const Results without, Run(owned.problem));
    owned.problem.sinks = AddSinks({-3e38, -3e38, -3e38, -3e38}, owned);
    ASSERT_OK_AND_ASSIGN(const Results with, Run(owned.problem));
    EXPECT_TRUE(SameBits(without, with));
  }
}

TEST_P(SinksTest, TheLargestSinksTakeEverything) {
  for (const ProblemSpec& spec : EveryWay()) {
    OwnedProblem owned = MakeProblem(spec, TestSeed());
    owned.problem.sinks = AddSinks({3e38, 3e38, 3e38, 3e38}, owned);
    ASSERT_OK_AND_ASSIGN(const Results results, Run(owned.problem));
    EXPECT_THAT(results.output.ToDoubles(), Each(Eq(0)));
    EXPECT_THAT(results.lse->ToFloats(), Each(Eq(3e38F)));
    if (results.weights) {
      EXPECT_THAT(results.weights->ToDoubles(), Each(Eq(0)));
    }
  }
}

TEST_P(SinksTest, EveryWayMatchesTheOracle) {
  for (const ProblemSpec& spec : EveryWay()) {
    // Beside so many keys a sink has to be larger than one of them to show.
    OwnedProblem owned = MakeProblem(spec, TestSeed());
    owned.problem.sinks = AddSinks({7, 9, 11, 100}, owned);
    Check(owned.problem);
  }
}

TEST_P(SinksTest, ARowWithoutKeysGivesItsSink) {
  for (const double sink : {-3e38, 0.0, 3e38}) {
    for (ProblemSpec spec : EveryWay()) {
      SCOPED_TRACE(absl::StrCat(sink, " ", spec.query_length, " queries"));
      spec.causal = Causal::kTopLeft;
      spec.query_offset = -10;
      OwnedProblem owned = MakeProblem(spec, TestSeed());
      owned.problem.sinks = AddSinks({sink, sink, sink, sink}, owned);
      ASSERT_OK_AND_ASSIGN(const Results results, Run(owned.problem));
      const std::vector<double> lse = results.lse->ToDoubles();
      const std::vector<double> output = results.output.ToDoubles();
      const size_t rows = spec.query_length;
      for (size_t row = 0; row < lse.size(); ++row) {
        if (row % rows >= 10) continue;
        EXPECT_NEAR(lse[row], sink, 1e-6 * std::abs(sink));
        for (size_t x = 0; x < 6; ++x) EXPECT_EQ(output[row * 6 + x], 0);
      }
    }
  }
}

TEST_P(SinksTest, NoKeysAtAllGiveTheSinks) {
  OwnedProblem owned = MakeProblem({.query_heads = 2,
                                    .kv_heads = 1,
                                    .query_length = 1,
                                    .key_length = 0,
                                    .empty_rows = EmptyRows::kUniform},
                                   TestSeed());
  owned.problem.sinks = AddSinks({1.5, -kInfinity}, owned);
  ASSERT_OK_AND_ASSIGN(const Results results, Run(owned.problem));
  EXPECT_THAT(results.output.ToDoubles(), Each(Eq(0)));
  EXPECT_THAT(results.lse->ToDoubles(),
              ::testing::ElementsAre(1.5, -kInfinity, 1.5, -kInfinity));
}

// What takes no part does not reach a row that has a sink and nothing else.
TEST_P(SinksTest, NanBehindAMaskLeavesASinkAlone) {
  for (const ProblemSpec& spec : EveryWay()) {
    OwnedProblem owned = MakeProblem(spec, TestSeed());
    const KeyValueBlock& block = owned.problem.key_value[0];
    Fill(Slice(block.key, 2, 5, 9), std::nan(""));
    Fill(Slice(block.value, 2, 5, 9), std::nan(""));
    owned.problem.masks.attend_mask = owned.Add(
        DataType::kBool, {spec.query_length, spec.key_length},
        Layout::kRowMajor, [&](absl::Span<const int64_t> index) {
          const bool row_without_keys = index[0] == spec.query_length - 1;
          return row_without_keys || (index[1] >= 5 && index[1] < 9) ? 0 : 1;
        });
    owned.problem.sinks = AddSinks({7, 9, 11, 100}, owned);
    Check(owned.problem);
  }
}

INSTANTIATE_FOR_BACKENDS(SinksTest);

}  // namespace
}  // namespace attention::test
