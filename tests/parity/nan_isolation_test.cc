// What takes no part in a row does not reach it, be it NaN or infinite; what
// takes part, does.

#include <cmath>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/parity/backend_test.h"
#include "tests/support/random.h"
#include "tests/support/special_numbers.h"

namespace attention::test {
namespace {

constexpr int64_t kKeys = 70;

// One way to leave keys out. Each leaves some keys out of every row of a
// key/value head, and others out of some rows only.
struct Isolation {
  const char* name;
  void (*apply)(OwnedProblem& owned);
};

// A (Lk)-shaped or (Lq, Lk)-shaped mask: every 6th key, and a triangle.
bool LeavesOut(absl::Span<const int64_t> index) {
  return index[1] % 6 == 3 || index[1] == 10 + index[0];
}

void MaskByLengths(OwnedProblem& owned) {
  owned.problem.masks.valid_lens =
      owned.Add(DataType::kInt32, {2}, Layout::kRowMajor,
                [](absl::Span<const int64_t> index) {
                  return index[0] == 0 ? 20.0 : 63.0;
                });
}

void MaskByLengthsPerRow(OwnedProblem& owned) {
  owned.problem.masks.valid_lens =
      owned.Add(DataType::kInt64, {2, 5}, Layout::kRowMajor,
                [](absl::Span<const int64_t> index) {
                  return static_cast<double>(30 * index[0] + 7 * index[1] + 1);
                });
}

void MaskByAttendMask(OwnedProblem& owned) {
  owned.problem.masks.attend_mask = owned.Add(
      DataType::kBool, {5, kKeys}, Layout::kRowMajor,
      [](absl::Span<const int64_t> index) { return LeavesOut(index) ? 0 : 1; });
}

void MaskByBias(OwnedProblem& owned) {
  owned.problem.masks.bias =
      owned.Add(DataType::kFloat32, {5, kKeys}, Layout::kRowMajor,
                [](absl::Span<const int64_t> index) {
                  return LeavesOut(index) ? -kInfinity : 0.5;
                });
}

void MaskByCausality(OwnedProblem& owned) {
  owned.problem.masks.causal = Causal::kTopLeft;
  owned.problem.masks.query_offset = 30;
}

void MaskByWindow(OwnedProblem& owned) {
  owned.problem.masks.window = {.left = 8, .right = 3};
  owned.problem.masks.query_offset = 33;
}

// With what else there is for a head.
void MaskByCausalityOfEntries(OwnedProblem& owned) {
  const auto add = [&owned](DataType type, const Shape& shape,
                            std::vector<double> numbers) {
    return owned.Add(type, shape, Layout::kRowMajor,
                     [&](absl::Span<const int64_t> index) {
                       return numbers[static_cast<size_t>(index[0])];
                     });
  };
  owned.problem.masks.causal = Causal::kTopLeft;
  owned.problem.masks.query_offsets = add(DataType::kInt64, {2}, {30, 45});
  owned.problem.alibi_slopes =
      add(DataType::kFloat32, {4}, {0.5, 0.25, -0.125, 0.0625});
  owned.problem.sinks = add(DataType::kFloat32, {4}, {1, 2, -1, -kInfinity});
}

constexpr Isolation kIsolations[] = {
    {"valid_lens", MaskByLengths},
    {"valid_lens_per_row", MaskByLengthsPerRow},
    {"attend_mask", MaskByAttendMask},
    {"bias", MaskByBias},
    {"causal", MaskByCausality},
    {"causal_of_entries", MaskByCausalityOfEntries},
    {"window", MaskByWindow}};

// Parameter: backend, mechanism, scoring.
class NanIsolationTest : public ::testing::TestWithParam<
                             std::tuple<std::string, Isolation, ScoringKind>> {
 protected:
  NanIsolationTest() {
    std::get<1>(GetParam()).apply(owned_);
    clean_ = ComputeExpected(problem());
  }

  AttentionProblem& problem() { return owned_.problem; }
  const KeyValueBlock& block() { return problem().key_value[0]; }

  // True where key j of a key/value head takes part in no row that reads it.
  bool LeftOutEverywhere(int64_t b, int64_t kv_head, int64_t j) const {
    for (int64_t h = 2 * kv_head; h < 2 * kv_head + 2; ++h) {
      for (int64_t i = 0; i < clean_.query_length; ++i) {
        const int64_t row = (b * clean_.query_heads + h) * 5 + i;
        if (clean_.weights[row * kKeys + j] != 0) return false;
      }
    }
    return true;
  }

  // A key that takes part in some rows and not in others.
  int64_t PlantedKey() const {
    const size_t rows = clean_.lse.size();
    for (int64_t j = 0; j < kKeys; ++j) {
      size_t rows_with = 0;
      for (size_t row = 0; row < rows; ++row) {
        if (clean_.weights[row * kKeys + j] != 0) ++rows_with;
      }
      if (rows_with > 0 && rows_with < rows) return j;
    }
    return -1;
  }

  static void FillRow(const TensorView& view, int64_t b, int64_t h, int64_t j,
                      double value) {
    for (int64_t d = 0; d < view.shape[3]; ++d) {
      SetElement(view, {b, h, j, d}, value);
    }
  }

  // Plants in every key that no row reads; returns how many there were.
  int PlantWhereLeftOut(double in_keys, double in_values) {
    int planted = 0;
    for (int64_t b = 0; b < 2; ++b) {
      for (int64_t h = 0; h < 2; ++h) {
        for (int64_t j = 0; j < kKeys; ++j) {
          if (!LeftOutEverywhere(b, h, j)) continue;
          FillRow(block().key, b, h, j, in_keys);
          FillRow(block().value, b, h, j, in_values);
          ++planted;
        }
      }
    }
    return planted;
  }

  void CheckAgainstOracle() {
    ASSERT_OK_AND_ASSIGN(
        const Results results,
        RunOn(*MakeEngine(std::get<0>(GetParam())), problem()));
    EXPECT_TRUE(Matches(problem(), results));
    rows_with_nan_ = 0;
    for (const double lse : results.lse->ToDoubles()) {
      if (std::isnan(lse)) ++rows_with_nan_;
    }
  }

  OwnedProblem owned_ = MakeProblem({.query_heads = 4,
                                     .kv_heads = 2,
                                     .query_length = 5,
                                     .key_length = kKeys,
                                     .width = 9,
                                     .scoring = std::get<2>(GetParam())},
                                    TestSeed());
  Expected clean_;
  int rows_with_nan_ = 0;
};

TEST_P(NanIsolationTest, NanInLeftOutKeysAndValuesDoesNotLeak) {
  ASSERT_GT(PlantWhereLeftOut(kNan, kNan), 0);
  CheckAgainstOracle();
  EXPECT_EQ(rows_with_nan_, 0);
}

TEST_P(NanIsolationTest, InfinityInLeftOutKeysAndValuesDoesNotLeak) {
  ASSERT_GT(PlantWhereLeftOut(kInfinity, -kInfinity), 0);
  CheckAgainstOracle();
  EXPECT_EQ(rows_with_nan_, 0);
}

TEST_P(NanIsolationTest, NanInAKeyReachesTheRowsThatItTakesPartIn) {
  ASSERT_GE(PlantedKey(), 0);
  int taking_part = 0;
  for (size_t row = 0; row < clean_.lse.size(); ++row) {
    if (clean_.weights[row * kKeys + PlantedKey()] != 0) ++taking_part;
  }
  for (int64_t b = 0; b < 2; ++b) {
    for (int64_t h = 0; h < 2; ++h) {
      FillRow(block().key, b, h, PlantedKey(), kNan);
    }
  }
  CheckAgainstOracle();
  EXPECT_EQ(rows_with_nan_, taking_part);
}

TEST_P(NanIsolationTest, NanInAValueReachesTheRowsThatItTakesPartIn) {
  ASSERT_GE(PlantedKey(), 0);
  for (int64_t b = 0; b < 2; ++b) {
    SetElement(block().value, {b, 1, PlantedKey(), 2}, kNan);
  }
  CheckAgainstOracle();
  EXPECT_EQ(rows_with_nan_, 0);  // lse knows nothing of values
}

TEST_P(NanIsolationTest, NanInAQueryStaysInItsRow) {
  SetElement(problem().query, {1, 2, 3, 0}, kNan);
  CheckAgainstOracle();
  EXPECT_EQ(rows_with_nan_, 1);
}

std::string NameOf(
    const ::testing::TestParamInfo<NanIsolationTest::ParamType>& info) {
  static constexpr const char* kScorings[] = {"dot_product", "additive",
                                              "gaussian", "bilinear"};
  const auto& [backend, mechanism, scoring] = info.param;
  return absl::StrCat(backend, "_", mechanism.name, "_",
                      kScorings[static_cast<int>(scoring)]);
}

INSTANTIATE_TEST_SUITE_P(
    Backends, NanIsolationTest,
    ::testing::Combine(
        ::testing::ValuesIn(Backends()), ::testing::ValuesIn(kIsolations),
        ::testing::Values(ScoringKind::kDotProduct, ScoringKind::kAdditive,
                          ScoringKind::kGaussian, ScoringKind::kBilinear)),
    NameOf);

using NanTest = BackendTest;

TEST_P(NanTest, NanInTheOnlyKeyGivesNan) {
  const OwnedProblem owned =
      MakeProblem({.query_length = 2, .key_length = 1}, TestSeed());
  SetElement(owned.problem.key_value[0].key, {0, 0, 0, 0}, kNan);
  Check(owned.problem);
}

TEST_P(NanTest, NanInTheOnlyAttendedKeyGivesNan) {
  const OwnedProblem owned = MakeProblem(
      {.query_length = 9, .key_length = 9, .window = {0, 0}}, TestSeed());
  SetElement(owned.problem.key_value[0].key, {1, 0, 4, 0}, kNan);
  Check(owned.problem);
}

INSTANTIATE_FOR_BACKENDS(NanTest);

}  // namespace
}  // namespace attention::test
