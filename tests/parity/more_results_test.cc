// The largest weights, what keys receive, and scores: what holds whatever the
// numbers are. That they are right is for the covering arrays.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
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

ProblemSpec Wanting(const WantedOutputs& wanted) {
  return {.query_heads = 4,
          .kv_heads = 2,
          .query_length = 40,
          .key_length = 600,
          .width = 16,
          .value_width = 8,
          .wanted = wanted};
}

using MoreResultsTest = BackendTest;

TEST(MoreResultsOfDevices, AreLeftToTheNextBackend) {
  const std::pair<WantedOutputs, const char*> each[] = {
      {{.top_k = 1}, "top_k: 1 (the cuda backend does not"},
      {{.key_weights = true}, "key_weights (the cuda backend does not"},
      {{.scores = ScoreStage::kScaled}, "scores (the cuda backend does not"}};
  for (const std::string& backend : Backends()) {
    if (!IsDevice(backend)) continue;
    const auto engine = MakeEngine(backend);
    for (const auto& [wanted, begin] : each) {
      const OwnedProblem owned = MakeProblem(Wanting(wanted), TestSeed());
      EXPECT_THAT(RunOn(*engine, owned.problem).status(),
                  StatusIs(absl::StatusCode::kUnimplemented,
                           ::testing::StartsWith(begin)));
    }
  }
}

std::vector<int64_t> Keys(const Results& results) {
  const auto* first =
      reinterpret_cast<const int64_t*>(results.top_k_indices->data());
  return {first, first + results.top_k_indices->element_count()};
}

// The k first of a row's weights in their order, and their keys.
void ExpectSorted(const Results& results, int64_t keys, int64_t k) {
  const std::vector<double> weights = results.weights->ToDoubles();
  const std::vector<double> top = results.top_k_weights->ToDoubles();
  const std::vector<int64_t> found = Keys(results);
  std::vector<int64_t> order(static_cast<size_t>(keys));
  for (int64_t row = 0; row < static_cast<int64_t>(weights.size()) / keys;
       ++row) {
    const double* const of_row = &weights[static_cast<size_t>(row * keys)];
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return of_row[a] > of_row[b];
    });
    for (int64_t n = 0; n < k; ++n) {
      const auto at = static_cast<size_t>(row * k + n);
      const int64_t key = order[static_cast<size_t>(n)];
      ASSERT_EQ(top[at], of_row[key]) << "row " << row << ", place " << n;
      if (of_row[key] == 0) continue;
      ASSERT_EQ(found[at], key) << "row " << row << ", place " << n;
    }
  }
}

TEST_P(MoreResultsTest, TopKIsWhatSortingTheWeightsGives) {
  for (const int64_t k : {1, 2, 7, 64, 600}) {
    SCOPED_TRACE(k);
    ProblemSpec spec = Wanting({.weights = true, .top_k = k});
    spec.causal = Causal::kBottomRight;
    ASSERT_OK_AND_ASSIGN(const Results results,
                         Run(MakeProblem(spec, TestSeed()).problem));
    ExpectSorted(results, spec.key_length, k);
  }
}

// Whatever order weights come in: rising, falling, all the same.
TEST_P(MoreResultsTest, TopKOfWeightsInAnyOrder) {
  for (const double slope : {0.05, -0.05, 0.0}) {
    SCOPED_TRACE(slope);
    ProblemSpec spec = Wanting({.weights = true, .top_k = 9});
    spec.scale = 0;
    spec.alibi_slopes = PerHeadShape::kPerHead;
    OwnedProblem owned = MakeProblem(spec, TestSeed());
    Fill(*owned.problem.alibi_slopes, slope);
    ASSERT_OK_AND_ASSIGN(const Results results, Run(owned.problem));
    ExpectSorted(results, spec.key_length, 9);
  }
}

TEST_P(MoreResultsTest, KeyWeightsSumToTheRowsThatHaveKeys) {
  ProblemSpec spec = Wanting({.key_weights = true});
  spec.query_length = 700;
  spec.key_length = 70;
  spec.valid_lens = LengthsShape::kPerRow;
  const OwnedProblem owned = MakeProblem(spec, TestSeed());
  ASSERT_OK_AND_ASSIGN(const Results results, Run(owned.problem));
  const std::vector<double> sums = results.key_weights->ToDoubles();
  for (int64_t b = 0; b < spec.batch; ++b) {
    double rows = 0;
    for (int64_t i = 0; i < spec.query_length; ++i) {
      rows += ElementOf(*owned.problem.masks.valid_lens, {b, i}) > 0 ? 1 : 0;
    }
    for (int64_t h = 0; h < spec.query_heads; ++h) {
      const auto first = sums.begin() + (b * spec.query_heads + h) * 70;
      EXPECT_NEAR(std::accumulate(first, first + 70, 0.0), rows, 1e-3);
    }
  }
}

TEST_P(MoreResultsTest, SoftmaxOfMaskedScoresIsTheWeights) {
  ProblemSpec spec = Wanting({.weights = true, .scores = ScoreStage::kMasked});
  spec.softcap = 5;
  spec.bias = MaskExtents::kAll;
  spec.attend_mask = MaskExtents::kAll;
  spec.causal = Causal::kBottomRight;
  ASSERT_OK_AND_ASSIGN(const Results results,
                       Run(MakeProblem(spec, TestSeed()).problem));
  const std::vector<double> weights = results.weights->ToDoubles();
  const std::vector<double> scores = results.scores->ToDoubles();
  for (size_t first = 0; first < scores.size(); first += 600) {
    const double max = *std::max_element(&scores[first], &scores[first] + 600);
    double sum = 0;
    for (size_t j = 0; j < 600; ++j) sum += std::exp(scores[first + j] - max);
    for (size_t j = 0; j < 600; ++j) {
      ASSERT_NEAR(std::exp(scores[first + j] - max) / sum, weights[first + j],
                  1e-5);
    }
  }
}

// Scores before masks are of all keys, and the same whatever masks there are.
TEST_P(MoreResultsTest, MasksDoNotMeetScoresBeforeThem) {
  for (const ScoreStage stage : {ScoreStage::kScaled, ScoreStage::kCapped}) {
    ProblemSpec spec = Wanting({.scores = stage});
    spec.softcap = 2;
    ASSERT_OK_AND_ASSIGN(const Results plain,
                         Run(MakeProblem(spec, TestSeed()).problem));
    spec.causal = Causal::kTopLeft;
    spec.window.left = 5;
    ASSERT_OK_AND_ASSIGN(const Results masked,
                         Run(MakeProblem(spec, TestSeed()).problem));
    EXPECT_EQ(plain.scores->ToDoubles(), masked.scores->ToDoubles());
  }
}

// Nothing stands in for a softcap that is small beside everything else.
TEST_P(MoreResultsTest, ScoresUnderATinySoftcapAreThatSoftcap) {
  ProblemSpec spec = Wanting({.scores = ScoreStage::kCapped});
  spec.softcap = 0x1p-100;
  ASSERT_OK_AND_ASSIGN(const Results results,
                       Run(MakeProblem(spec, TestSeed()).problem));
  for (const double score : results.scores->ToDoubles()) {
    ASSERT_NEAR(std::abs(score), 0x1p-100, 0x1p-120);
  }
}

TEST_P(MoreResultsTest, RowsWithoutKeys) {
  for (const EmptyRows empty : {EmptyRows::kZero, EmptyRows::kUniform}) {
    ProblemSpec spec = Wanting({.top_k = 3, .key_weights = true});
    spec.valid_lens = LengthsShape::kPerBatch;
    spec.empty_rows = empty;
    const OwnedProblem owned = MakeProblem(spec, TestSeed());
    Fill(*owned.problem.masks.valid_lens, 0);
    ASSERT_OK_AND_ASSIGN(const Results results, Run(owned.problem));
    const bool zero = empty == EmptyRows::kZero;
    const std::vector<int64_t> keys = Keys(results);
    const std::vector<double> weights = results.top_k_weights->ToDoubles();
    for (size_t n = 0; n < keys.size(); ++n) {
      ASSERT_EQ(keys[n], zero ? -1 : static_cast<int64_t>(n % 3));
      ASSERT_NEAR(weights[n], zero ? 0 : 1 / 600.0, 1e-9);
    }
    for (const double sum : results.key_weights->ToDoubles()) {
      ASSERT_NEAR(sum, zero ? 0 : 40 / 600.0, 1e-6);
    }
  }
}

// NaN in a key is in the rows in which it takes part, and with those keys alone
// that do.
TEST_P(MoreResultsTest, NanStaysInItsRows) {
  ProblemSpec spec = Wanting({.top_k = 2, .key_weights = true});
  spec.query_heads = spec.kv_heads = 1;
  spec.batch = 1;
  spec.causal = Causal::kTopLeft;
  OwnedProblem owned = MakeProblem(spec, TestSeed());
  SetElement(owned.problem.key_value[0].key, {0, 0, 30, 0},
             std::numeric_limits<double>::quiet_NaN());
  ASSERT_OK_AND_ASSIGN(const Results results, Run(owned.problem));
  const std::vector<double> weights = results.top_k_weights->ToDoubles();
  const std::vector<int64_t> keys = Keys(results);
  for (size_t row = 0; row < 40; ++row) {
    EXPECT_EQ(std::isnan(weights[2 * row]), row >= 30) << row;
    if (row < 30) continue;
    EXPECT_EQ(keys[2 * row + 1], 1) << row;
  }
  const std::vector<double> sums = results.key_weights->ToDoubles();
  for (size_t key = 0; key < sums.size(); ++key) {
    EXPECT_EQ(std::isnan(sums[key]), key < 40) << key;
    if (key < 40) continue;
    EXPECT_EQ(sums[key], 0) << key;
  }
}

TEST_P(MoreResultsTest, NoQueriesGiveNothingToKeys) {
  ProblemSpec spec = Wanting({.key_weights = true});
  spec.query_length = 0;
  ASSERT_OK_AND_ASSIGN(const Results results,
                       Run(MakeProblem(spec, TestSeed()).problem));
  EXPECT_THAT(results.key_weights->ToDoubles(), ::testing::Each(0.0));
}

// No byte of it bounds the number of heads.
TEST_P(MoreResultsTest, NoKeysOfManyHeadsTakeNoTime) {
  constexpr int64_t kMany = int64_t{1} << 24;
  const TensorView none =
      ContiguousView(DataType::kFloat32, {kMany, kMany, 0, 1}, nullptr);
  AttentionProblem problem;
  problem.query = none;
  problem.key_value.push_back({none, none});
  problem.wanted.key_weights = true;
  ASSERT_OK_AND_ASSIGN(const Results results, Run(problem));
  EXPECT_EQ(results.key_weights->element_count(), 0);
}

// One query against many keys is otherwise computed in splits.
TEST_P(MoreResultsTest, OneQueryAgainstManyKeys) {
  for (const DataType type : {DataType::kFloat32, DataType::kBFloat16}) {
    ProblemSpec spec = Wanting({.weights = true,
                                .top_k = 20,
                                .key_weights = true,
                                .scores = ScoreStage::kMasked});
    spec.type = type;
    spec.query_length = 1;
    spec.key_length = 3000;
    const OwnedProblem owned = MakeProblem(spec, TestSeed());
    Check(owned.problem);
    ASSERT_OK_AND_ASSIGN(const Results results, Run(owned.problem));
    EXPECT_EQ(results.key_weights->ToDoubles(), results.weights->ToDoubles());
  }
}

// Chunks of rows follow from the head alone.
TEST_P(MoreResultsTest, ABatchEntryAndAHeadGiveTheBitsThatTheyGiveAlone) {
  for (const ScoringKind scoring :
       {ScoringKind::kDotProduct, ScoringKind::kGaussian}) {
    ProblemSpec spec = Wanting({.key_weights = true});
    spec.batch = 9;
    spec.query_length = 250;
    spec.key_length = 65;
    spec.scoring = scoring;
    spec.empty_rows = EmptyRows::kUniform;
    spec.valid_lens = LengthsShape::kPerRow;
    OwnedProblem owned = MakeProblem(spec, TestSeed());
    ASSERT_OK_AND_ASSIGN(const Results all, Run(owned.problem));
    AttentionProblem& problem = owned.problem;
    for (const int extent : {0, 1}) {
      KeyValueBlock& block = problem.key_value[0];
      problem.query = Slice(problem.query, extent, 0, 1);
      block = {.key = Slice(block.key, extent, 0, 1),
               .value = Slice(block.value, extent, 0, 1)};
      if (extent == 0) {
        problem.masks.valid_lens =
            Slice(*problem.masks.valid_lens, extent, 0, 1);
      }
    }
    ASSERT_OK_AND_ASSIGN(const Results alone, Run(problem));
    const TensorView first =
        Slice(Slice(all.key_weights->view(), 0, 0, 1), 1, 0, 1);
    EXPECT_EQ(alone.key_weights->ToDoubles(), Materialize(first).ToDoubles());
  }
}

TEST_P(MoreResultsTest, TheyMayLieAtAnyAddress) {
  const OwnedProblem owned = MakeProblem(
      Wanting({.top_k = 4, .key_weights = true, .scores = ScoreStage::kMasked}),
      TestSeed());
  ASSERT_OK_AND_ASSIGN(const Results expected, Run(owned.problem));
  ASSERT_OK_AND_ASSIGN(const ValidatedProblem valid, Validate(owned.problem));
  Results results = expected;
  AttentionJob job;
  job.problem = &valid;
  job.outputs = OutputsOf(results);
  std::vector<std::vector<std::byte>> memory;
  for (MutableTensorView* view :
       {&job.outputs.top_k_indices, &job.outputs.top_k_weights,
        &job.outputs.key_weights, &job.outputs.scores}) {
    const int64_t bytes =
        ElementCount(view->shape).value() * ByteSize(view->type);
    memory.emplace_back(static_cast<size_t>(bytes) + 1);
    view->data = memory.back().data() + 1;
  }
  ASSERT_THAT(engine().Run(job), IsOk());
  const auto same = [](const MutableTensorView& view, const Tensor& tensor) {
    return Materialize(ReadOnly(view)).ToDoubles() == tensor.ToDoubles();
  };
  EXPECT_TRUE(same(job.outputs.top_k_indices, *expected.top_k_indices));
  EXPECT_TRUE(same(job.outputs.top_k_weights, *expected.top_k_weights));
  EXPECT_TRUE(same(job.outputs.key_weights, *expected.key_weights));
  EXPECT_TRUE(same(job.outputs.scores, *expected.scores));
}

INSTANTIATE_TEST_SUITE_P(Backends, MoreResultsTest,
                         ::testing::ValuesIn(HostBackends()),
                         [](const auto& parameter) { return parameter.param; });

// No engine but those of the test (determinism_test.cc says why).
TEST(MoreResultsOfThreads, AnyNumberOfThreads) {
  for (const char* backend : {"cpu", "reference"}) {
    ProblemSpec spec = Wanting(
        {.top_k = 7, .key_weights = true, .scores = ScoreStage::kMasked});
    spec.query_length = 1500;
    spec.key_length = 150;
    spec.causal = Causal::kBottomRight;
    const OwnedProblem owned = MakeProblem(spec, TestSeed());
    ASSERT_OK_AND_ASSIGN(const Results one,
                         RunOn(*MakeEngine(backend, 1), owned.problem));
    for (const int threads : {2, 7}) {
      ASSERT_OK_AND_ASSIGN(const Results several,
                           RunOn(*MakeEngine(backend, threads), owned.problem));
      EXPECT_TRUE(SameBits(one, several)) << backend << ", " << threads;
    }
  }
}

}  // namespace
}  // namespace attention::test
