// A score of -inf takes no part, wherever it comes from.

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/parity/backend_test.h"
#include "tests/parity/ways.h"
#include "tests/support/random.h"
#include "tests/support/special_numbers.h"

namespace attention::test {
namespace {

using ::testing::Each;

// One way to scores of -inf.
struct Mechanism {
  const char* name;
  ScoringKind scoring;
  void (*apply)(OwnedProblem& owned, bool (*left_out)(int64_t key));
};

void FillLeftOut(const TensorView& view, bool (*left_out)(int64_t key),
                 double value) {
  for (int64_t key = 0; key < view.shape[2]; ++key) {
    if (left_out(key)) Fill(Slice(view, 2, key, key + 1), value);
  }
}

void AddBias(OwnedProblem& owned, bool (*left_out)(int64_t key)) {
  const int64_t keys = owned.problem.key_value[0].key.shape[2];
  owned.problem.masks.bias =
      owned.Add(DataType::kFloat32, {1, keys}, Layout::kRowMajor,
                [&](absl::Span<const int64_t> index) {
                  return left_out(index[1]) ? -kInfinity : 0;
                });
}

void SetInfiniteKeys(OwnedProblem& owned, bool (*left_out)(int64_t key)) {
  Fill(owned.problem.query, 0.5);
  FillLeftOut(owned.problem.key_value[0].key, left_out, -kInfinity);
}

void SetKeysThatOverflow(OwnedProblem& owned, bool (*left_out)(int64_t key)) {
  Fill(Slice(owned.problem.query, 3, 0, 1), 1e25);
  Fill(Slice(owned.problem.key_value[0].key, 3, 0, 1), 0);
  FillLeftOut(Slice(owned.problem.key_value[0].key, 3, 0, 1), left_out, -1e25);
}

void SetDistantKeys(OwnedProblem& owned, bool (*left_out)(int64_t key)) {
  FillLeftOut(owned.problem.key_value[0].key, left_out, kInfinity);
}

constexpr Mechanism kMechanisms[] = {
    {"bias", ScoringKind::kDotProduct, AddBias},
    {"infinite_keys", ScoringKind::kDotProduct, SetInfiniteKeys},
    {"overflow", ScoringKind::kDotProduct, SetKeysThatOverflow},
    {"Gaussian_at_infinity", ScoringKind::kGaussian, SetDistantKeys}};

bool EveryThird(int64_t key) { return key % 3 == 1; }
bool All(int64_t) { return true; }

// Parameter: backend, mechanism, way, type.
class MinusInfinityTest
    : public ::testing::TestWithParam<
          std::tuple<std::string, Mechanism, Way, DataType>> {
 protected:
  static const Mechanism& mechanism() { return std::get<1>(GetParam()); }

  static ProblemSpec Spec() {
    ProblemSpec spec = SpecOf(std::get<2>(GetParam()), std::get<3>(GetParam()));
    spec.scoring = mechanism().scoring;
    spec.sigma = 3;
    return spec;
  }

  static Results Run(const AttentionProblem& problem) {
    return RunOn(*MakeEngine(std::get<0>(GetParam())), problem).value();
  }
};

// As if those keys were masked, with and without weights: NaN in their values
// is seen nowhere.
TEST_P(MinusInfinityTest, IsAMask) {
  for (const bool weights : {false, true}) {
    ProblemSpec spec = Spec();
    spec.wanted.weights = weights;
    OwnedProblem owned = MakeProblem(spec, TestSeed());
    mechanism().apply(owned, EveryThird);
    owned.problem.masks.attend_mask =
        owned.Add(DataType::kBool, {1, spec.key_length}, Layout::kRowMajor,
                  [](absl::Span<const int64_t> index) {
                    return EveryThird(index[1]) ? 0 : 1;
                  });
    const Expected masked = ComputeExpected(owned.problem);
    owned.problem.masks.attend_mask.reset();
    FillLeftOut(owned.problem.key_value[0].value, EveryThird, kNan);
    EXPECT_TRUE(Matches(owned.problem, masked, Run(owned.problem)));
  }
}

TEST_P(MinusInfinityTest, OfEveryKeyLeavesAnEmptyRow) {
  OwnedProblem owned = MakeProblem(Spec(), TestSeed());
  mechanism().apply(owned, All);
  FillLeftOut(owned.problem.key_value[0].value, All, kNan);
  const Results results = Run(owned.problem);
  EXPECT_THAT(results.output.ToDoubles(), Each(0));
  EXPECT_THAT(results.weights->ToDoubles(), Each(0));
  EXPECT_THAT(results.lse->ToDoubles(), Each(-kInfinity));
}

TEST_P(MinusInfinityTest, OfEveryKeyGivesTheMeanWhenUniform) {
  ProblemSpec spec = Spec();
  spec.empty_rows = EmptyRows::kUniform;
  OwnedProblem owned = MakeProblem(spec, TestSeed());
  owned.problem.masks.attend_mask =
      owned.Add(DataType::kBool, {1, 1}, Layout::kRowMajor,
                [](absl::Span<const int64_t>) { return 0; });
  const Expected empty = ComputeExpected(owned.problem);
  owned.problem.masks.attend_mask.reset();
  mechanism().apply(owned, All);
  EXPECT_TRUE(Matches(owned.problem, empty, Run(owned.problem)));
}

std::string NameOfMinusInfinityTest(
    const ::testing::TestParamInfo<MinusInfinityTest::ParamType>& test) {
  const auto& [backend, mechanism, way, type] = test.param;
  return absl::StrCat(backend, "_", mechanism.name, "_", way.name, "_",
                      Name(type));
}

INSTANTIATE_TEST_SUITE_P(Backends, MinusInfinityTest,
                         ::testing::Combine(::testing::ValuesIn(Backends()),
                                            ::testing::ValuesIn(kMechanisms),
                                            ::testing::ValuesIn(kWays),
                                            ::testing::ValuesIn(kWayTypes)),
                         NameOfMinusInfinityTest);

using InfiniteScoreTest = BackendTest;

TEST_P(InfiniteScoreTest, TakesPartWhereASoftcapMakesItFinite) {
  for (const Way& way : kWays) {
    for (const DataType type : kWayTypes) {
      SCOPED_TRACE(absl::StrCat(way.name, " ", Name(type)));
      ProblemSpec spec = SpecOf(way, type);
      spec.softcap = 2;
      OwnedProblem owned = MakeProblem(spec, TestSeed());
      SetInfiniteKeys(owned, EveryThird);
      Check(owned.problem);
    }
  }
}

INSTANTIATE_FOR_BACKENDS(InfiniteScoreTest);

}  // namespace
}  // namespace attention::test
