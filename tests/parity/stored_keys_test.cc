// Keys and values of another type than queries: FP32, FP16, BF16, and INT8 and
// FP8 with a scale for each row.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/parity/backend_test.h"
#include "tests/support/random.h"

namespace attention::test {
namespace {

constexpr DataType kQueryTypes[] = {DataType::kFloat32, DataType::kFloat16,
                                    DataType::kBFloat16};
constexpr DataType kKeyTypes[] = {DataType::kFloat32, DataType::kFloat16,
                                  DataType::kBFloat16, DataType::kInt8,
                                  DataType::kFloat8};
constexpr DataType kScaledTypes[] = {DataType::kInt8, DataType::kFloat8};

// Parameter: backends, for all of which the oracle, which takes longest, is
// asked once.
class StoredKeysTest
    : public ::testing::TestWithParam<std::vector<std::string>> {
 protected:
  StoredKeysTest() {
    for (const std::string& backend : GetParam()) {
      engines_.emplace_back(backend, MakeEngine(backend));
    }
  }

  // Of every backend against the oracle. A device may leave it to the next one.
  void CheckOrRefused(const AttentionProblem& problem) const {
    const Expected expected = ComputeExpected(problem);
    for (const auto& [backend, engine] : engines_) {
      SCOPED_TRACE(backend);
      const absl::StatusOr<Results> results = RunOn(*engine, problem);
      const DataType key_type = problem.key_value[0].key.type;
      if (IsDevice(backend) && absl::IsUnimplemented(results.status()) &&
          key_type != problem.query.type) {
        EXPECT_THAT(std::string(results.status().message()),
                    ::testing::StartsWith(absl::StrCat(
                        "key: ", Name(key_type), " under a query of ",
                        Name(problem.query.type),
                        " (the cuda backend does not compute this")));
        continue;
      }
      ASSERT_TRUE(results.ok()) << results.status();
      EXPECT_TRUE(Matches(problem, expected, *results));
    }
  }

  // Under queries of every type.
  void CheckEveryType(ProblemSpec spec) const {
    for (const DataType type : kQueryTypes) {
      for (const DataType key_type : kKeyTypes) {
        SCOPED_TRACE(testing::Message()
                     << Name(key_type) << " under " << Name(type));
        spec.type = type;
        spec.key_type = key_type;
        CheckOrRefused(MakeProblem(spec, TestSeed()).problem);
      }
    }
  }

 private:
  std::vector<std::pair<std::string, std::unique_ptr<Engine>>> engines_;
};

TEST_P(StoredKeysTest, OfEveryTypeInManyTiles) {
  CheckEveryType({.query_heads = 4,
                  .kv_heads = 2,
                  .query_length = 130,
                  .key_length = 700,
                  .width = 40,
                  .value_width = 33,
                  .causal = Causal::kBottomRight});
}

TEST_P(StoredKeysTest, OfEveryTypeWhereFewRowsAreDecoded) {
  for (const int64_t width : {16, 33, 128}) {
    CheckEveryType({.query_heads = 6,
                    .kv_heads = 2,
                    .query_length = 2,
                    .key_length = 2100,
                    .width = width,
                    .value_width = width,
                    .keys_per_block = 600,
                    .wanted = {.weights = false, .lse = true}});
  }
}

TEST_P(StoredKeysTest, OfEveryTypeInASmallProblem) {
  CheckEveryType({.query_length = 3,
                  .key_length = 9,
                  .wanted = {.weights = false, .lse = false}});
}

TEST_P(StoredKeysTest, OfEveryTypeInRowsThatAreScoredPartByPart) {
  CheckEveryType({.batch = 1,
                  .query_length = 40,
                  .key_length = 50,
                  .width = 1100,
                  .value_width = 600});
}

TEST_P(StoredKeysTest, WithEveryScoringFunction) {
  for (const ScoringKind kind : {ScoringKind::kAdditive, ScoringKind::kGaussian,
                                 ScoringKind::kBilinear}) {
    SCOPED_TRACE(static_cast<int>(kind));
    CheckEveryType({.query_length = 60,
                    .key_length = 150,
                    .width = 24,
                    .value_width = 16,
                    .scoring = kind,
                    .sigma = 3,
                    .per_head_parameters = true});
  }
}

// They lie far from the origin, and rows of them far from the others.
TEST_P(StoredKeysTest, OfGaussianScoringAroundACentre) {
  CheckEveryType({.query_length = 60,
                  .key_length = 150,
                  .width = 24,
                  .value_width = 16,
                  .magnitudes = Magnitudes::kFarFromOrigin,
                  .scoring = ScoringKind::kGaussian,
                  .sigma = 3});
}

TEST_P(StoredKeysTest, InRowsThatAverageAllValues) {
  CheckEveryType({.query_length = 5,
                  .key_length = 40,
                  .valid_lens = LengthsShape::kPerRow,
                  .causal = Causal::kTopLeft,
                  .query_offset = -3,
                  .empty_rows = EmptyRows::kUniform});
}

// Their products with elements pass FP32's range, those with keys do not.
TEST_P(StoredKeysTest, UnderLargeQueriesWhereScalesAreSmall) {
  for (const DataType type : kScaledTypes) {
    const OwnedProblem owned =
        MakeProblem({.query_length = 1,
                     .key_length = 70,
                     .width = 64,
                     .key_type = type,
                     .wanted = {.weights = false, .lse = true}},
                    TestSeed());
    Fill(owned.problem.query, 1e37);
    Fill(*owned.problem.key_value[0].key_scale, 1e-30);
    CheckOrRefused(owned.problem);
  }
}

// No quantizer writes it. It means what it says.
TEST_P(StoredKeysTest, TheLeastByteIsMinus128) {
  for (const int64_t queries : {1, 40}) {
    const OwnedProblem owned =
        MakeProblem({.query_length = queries,
                     .key_length = 70,
                     .width = 16,
                     .key_type = DataType::kInt8,
                     .wanted = {.weights = false, .lse = true}},
                    TestSeed());
    const KeyValueBlock& block = owned.problem.key_value[0];
    Fill(Slice(block.key, 2, 7, 8), -128);
    Fill(Slice(block.value, 2, 7, 9), -128);
    CheckOrRefused(owned.problem);
  }
}

// FP8's NaN in a key and in a value: in the rows in which it takes part.
TEST_P(StoredKeysTest, NanIsNanWhereItTakesPart) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const int64_t queries : {1, 4, 40}) {
    for (const bool in_key : {true, false}) {
      const OwnedProblem owned =
          MakeProblem({.query_length = queries,
                       .key_length = 70,
                       .width = 16,
                       .key_type = DataType::kFloat8,
                       .causal = Causal::kTopLeft,
                       .query_offset = 28,
                       .wanted = {.weights = queries > 1, .lse = true}},
                      TestSeed());
      const KeyValueBlock& block = owned.problem.key_value[0];
      // Of key 30, which the first two rows do not attend.
      SetElement(in_key ? block.key : block.value, {1, 0, 30, 3}, nan);
      CheckOrRefused(owned.problem);
    }
  }
}

// A product beyond FP32's range is infinite, as FP32 arithmetic has it.
TEST_P(StoredKeysTest, ScalesReachBeyondTheRange) {
  for (const DataType type : kScaledTypes) {
    for (const int64_t queries : {1, 40}) {
      const OwnedProblem owned =
          MakeProblem({.query_length = queries,
                       .key_length = 70,
                       .width = 16,
                       .key_type = type,
                       .causal = Causal::kTopLeft,
                       .query_offset = 28,
                       .wanted = {.weights = false, .lse = true}},
                      TestSeed());
      const KeyValueBlock& block = owned.problem.key_value[0];
      SetElement(*block.value_scale, {0, 0, 30}, 3e38);
      CheckOrRefused(owned.problem);
    }
  }
}

TEST_P(StoredKeysTest, ScalesOfZeroMakeZeros) {
  for (const DataType type : kScaledTypes) {
    const OwnedProblem owned = MakeProblem(
        {.query_length = 40, .key_length = 70, .key_type = type}, TestSeed());
    const KeyValueBlock& block = owned.problem.key_value[0];
    Fill(Slice(*block.key_scale, 2, 3, 60), 0);
    Fill(Slice(*block.value_scale, 2, 3, 9), 0);
    CheckOrRefused(owned.problem);
  }
}

// What AMX decodes where it can: enough rows to a kv group, in two tiles of
// keys.
ProblemSpec DecodedAsBf16(DataType key_type) {
  return {.batch = 1,
          .query_heads = 16,
          .kv_heads = 2,
          .query_length = 1,
          .key_length = 600,
          .width = 64,
          .value_width = 70,
          .type = DataType::kBFloat16,
          .key_type = key_type,
          .wanted = {.weights = false, .lse = true}};
}

TEST_P(StoredKeysTest, LargeQueriesOfGroupedHeads) {
  for (const DataType type : kScaledTypes) {
    const OwnedProblem owned = MakeProblem(DecodedAsBf16(type), TestSeed());
    Fill(owned.problem.query, 1e37);
    Fill(*owned.problem.key_value[0].key_scale, 1e-30);
    CheckOrRefused(owned.problem);
  }
}

// A scale that only FP32 takes, in one tile of several, and small ones beside
// it.
TEST_P(StoredKeysTest, LargeScalesOfGroupedHeads) {
  for (const DataType type : kScaledTypes) {
    for (const int64_t key : {3, 590}) {
      const OwnedProblem owned = MakeProblem(DecodedAsBf16(type), TestSeed());
      const KeyValueBlock& block = owned.problem.key_value[0];
      Fill(Slice(block.key, 2, key, key + 1), 0);
      SetElement(*block.key_scale, {0, 0, key}, 1e30);
      SetElement(*block.value_scale, {0, 1, key}, 1e30);
      CheckOrRefused(owned.problem);
    }
  }
}

TEST_P(StoredKeysTest, TheLeastByteOfGroupedHeads) {
  const OwnedProblem owned =
      MakeProblem(DecodedAsBf16(DataType::kInt8), TestSeed());
  const KeyValueBlock& block = owned.problem.key_value[0];
  Fill(Slice(block.key, 2, 7, 8), -128);
  Fill(Slice(block.value, 2, 7, 9), -128);
  CheckOrRefused(owned.problem);
}

TEST_P(StoredKeysTest, NanOfGroupedHeadsIsWhereItTakesPart) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const bool masked : {true, false}) {
    for (const bool in_key : {true, false}) {
      ProblemSpec spec = DecodedAsBf16(DataType::kFloat8);
      spec.query_length = 2;
      spec.causal = Causal::kTopLeft;
      spec.query_offset = masked ? 29 : 598;  // of key 30, or of all
      const OwnedProblem owned = MakeProblem(spec, TestSeed());
      const KeyValueBlock& block = owned.problem.key_value[0];
      SetElement(in_key ? block.key : block.value, {0, 1, 30, 3}, nan);
      CheckOrRefused(owned.problem);
    }
  }
}

// The cpu backend is alone for the address sanitizer's sake, which has only
// that (tests/Sanitizers.cmake).
std::vector<std::vector<std::string>> CpuAndOthers() {
  std::vector<std::string> backends = Backends();
  const auto others = std::stable_partition(
      backends.begin(), backends.end(),
      [](const std::string& backend) { return backend == "cpu"; });
  std::vector<std::vector<std::string>> parts = {{backends.begin(), others},
                                                 {others, backends.end()}};
  std::erase(parts, std::vector<std::string>());
  return parts;
}

INSTANTIATE_TEST_SUITE_P(Backends, StoredKeysTest,
                         ::testing::ValuesIn(CpuAndOthers()),
                         [](const auto& test) {
                           return test.param[0] == "cpu" ? "cpu" : "others";
                         });

}  // namespace
}  // namespace attention::test
