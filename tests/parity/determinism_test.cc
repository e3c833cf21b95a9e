// The same request gives the same bits, whatever else happens.

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/parity/backend_test.h"
#include "tests/support/factors.h"
#include "tests/support/random.h"

namespace attention::test {
namespace {

using DeterminismTest = BackendTest;

// Large enough for several tiles, with everything that could depend on an
// order.
OwnedProblem LargeProblem() {
  return MakeProblem({.query_heads = 4,
                      .kv_heads = 2,
                      .query_length = 65,
                      .key_length = 129,
                      .width = 33,
                      .value_width = 17,
                      .keys_per_block = 50,
                      .valid_lens = LengthsShape::kPerRow,
                      .alibi_slopes = PerHeadShape::kPerHead,
                      .sinks = PerHeadShape::kPerHead,
                      .dropout = {.training = true, .p = 0.1, .seed = 11}},
                     TestSeed());
}

TEST_P(DeterminismTest, TwiceTheSame) {
  const OwnedProblem owned = LargeProblem();
  ASSERT_OK_AND_ASSIGN(const Results first, Run(owned.problem));
  ASSERT_OK_AND_ASSIGN(const Results second, Run(owned.problem));
  EXPECT_TRUE(SameBits(first, second));
}

// No engine but those of the tests: oneTBB gives no pool more threads than the
// smallest one that exists beside it has.
using ThreadsTest = ::testing::TestWithParam<std::string>;

INSTANTIATE_FOR_BACKENDS(ThreadsTest);

TEST_P(ThreadsTest, AnyNumberOfThreads) {
  for (size_t row = 0; row < FactorRows().size(); row += 4) {
    SCOPED_TRACE(Describe(FactorRows()[row]));
    const OwnedProblem owned = MakeProblem(
        SpecFor(GetParam(), SpecOf(FactorRows()[row])), TestSeed() + row);
    const AttentionProblem problem =
        WithoutRefused(*MakeEngine(GetParam(), 1), owned.problem);
    ASSERT_OK_AND_ASSIGN(const Results one,
                         RunOn(*MakeEngine(GetParam(), 1), problem));
    for (const int threads : {2, 7}) {
      ASSERT_OK_AND_ASSIGN(const Results several,
                           RunOn(*MakeEngine(GetParam(), threads), problem));
      EXPECT_TRUE(SameBits(one, several)) << threads << " threads";
    }
  }
}

TEST_P(ThreadsTest, AnyNumberOfThreadsForALargeProblem) {
  const OwnedProblem owned = LargeProblem();
  ASSERT_OK_AND_ASSIGN(const Results one,
                       RunOn(*MakeEngine(GetParam(), 1), owned.problem));
  for (const int threads : {2, 7}) {
    ASSERT_OK_AND_ASSIGN(
        const Results several,
        RunOn(*MakeEngine(GetParam(), threads), owned.problem));
    EXPECT_TRUE(SameBits(one, several)) << threads << " threads";
  }
}

std::optional<TensorView> FirstOf(const std::optional<TensorView>& view) {
  if (!view) return view;
  return Slice(*view, 0, 0, 1);
}

// Problems whose blocks of rows are longer in a batch, and those that kernels
// of few rows or few keys compute.
std::vector<ProblemSpec> Batches() {
  ProblemSpec spec = {.batch = 16,
                      .query_heads = 2,
                      .kv_heads = 2,
                      .query_length = 250,
                      .key_length = 65,
                      .width = 17,
                      .sigma = 3,
                      .causal = Causal::kTopLeft,
                      .dropout = {true, 0.3, 5}};
  std::vector<ProblemSpec> specs;
  for (const DataType type :
       {DataType::kFloat32, DataType::kBFloat16, DataType::kFloat16}) {
    spec.type = type;
    specs.push_back(spec);
  }
  spec.type = DataType::kFloat32;
  for (const ScoringKind scoring :
       {ScoringKind::kAdditive, ScoringKind::kGaussian,
        ScoringKind::kBilinear}) {
    spec.scoring = scoring;
    specs.push_back(spec);
  }
  spec.scoring = ScoringKind::kGaussian;
  spec.causal = Causal::kNone;
  spec.window.right = 3;
  specs.push_back(spec);
  const ProblemSpec decode = {
      .batch = 64, .query_length = 1, .key_length = 40, .wanted = kNoWeights};
  const ProblemSpec small = {.batch = 64,
                             .query_length = 1,
                             .key_length = 16,
                             .width = 64,
                             .wanted = {.weights = false, .lse = false}};
  specs.push_back(decode);
  specs.push_back(small);
  return specs;
}

// Whose tiles begin where a block's window does, once with several tiles to a
// row.
std::vector<ProblemSpec> BatchesUnderWindows() {
  std::vector<ProblemSpec> specs;
  ProblemSpec spec = {.batch = 16,
                      .query_heads = 2,
                      .kv_heads = 2,
                      .query_length = 250,
                      .key_length = 250,
                      .width = 9};
  for (const Window& window :
       {Window{4, {}}, Window{9, 3}, Window{0, 0}, Window{40, {}}}) {
    spec.window = window;
    for (const DataType type : {DataType::kFloat32, DataType::kBFloat16}) {
      spec.type = type;
      for (const Causal causal : {Causal::kNone, Causal::kBottomRight}) {
        spec.causal = causal;
        for (const ScoringKind scoring :
             {ScoringKind::kDotProduct, ScoringKind::kGaussian}) {
          spec.scoring = scoring;
          specs.push_back(spec);
        }
      }
    }
  }
  ProblemSpec several = {.batch = 32,
                         .query_length = 264,
                         .key_length = 700,
                         .width = 16,
                         .causal = Causal::kBottomRight,
                         .wanted = kNoWeights};
  several.window.left = 300;
  specs.push_back(several);
  several.key_type = DataType::kInt8;
  specs.push_back(several);
  return specs;
}

// One batch entry alone gives what it gives at the same place of a larger
// batch.
class BatchEntryTest : public BackendTest {
 protected:
  void ExpectTheFirstAlone(const std::vector<ProblemSpec>& specs) {
    for (size_t n = 0; n < specs.size(); ++n) {
      SCOPED_TRACE(absl::StrCat("problem ", n));
      OwnedProblem owned =
          MakeProblem(SpecFor(GetParam(), specs[n]), TestSeed());
      ASSERT_OK_AND_ASSIGN(const Results all, Run(owned.problem));
      AttentionProblem& problem = owned.problem;
      KeyValueBlock& block = problem.key_value[0];
      problem.query = Slice(problem.query, 0, 0, 1);
      block = {.key = Slice(block.key, 0, 0, 1),
               .value = Slice(block.value, 0, 0, 1),
               .key_scale = FirstOf(block.key_scale),
               .value_scale = FirstOf(block.value_scale)};
      ASSERT_OK_AND_ASSIGN(const Results alone, Run(problem));
      const auto first = [](const Tensor& tensor) {
        return Materialize(Slice(tensor.view(), 0, 0, 1)).ToDoubles();
      };
      EXPECT_EQ(alone.output.ToDoubles(), first(all.output));
      if (alone.weights) {
        EXPECT_EQ(alone.weights->ToDoubles(), first(*all.weights));
      }
      if (alone.lse) {
        EXPECT_EQ(alone.lse->ToDoubles(), first(*all.lse));
      }
    }
  }
};

TEST_P(BatchEntryTest, TheFirstAlone) { ExpectTheFirstAlone(Batches()); }

TEST_P(BatchEntryTest, TheFirstAloneUnderAWindow) {
  if (IsDevice(GetParam())) return;  // makes no such promise
  ExpectTheFirstAlone(BatchesUnderWindows());
}

INSTANTIATE_FOR_BACKENDS(BatchEntryTest);

// A backend is given several problems in one span.
TEST_P(DeterminismTest, AloneAndBesideOtherRequests) {
  ASSERT_EQ(engine().backends().size(), 1U);
  const Backend& backend = *engine().backends()[0];
  std::vector<OwnedProblem> owned;
  std::vector<ValidatedProblem> valid;
  std::vector<Results> alone;
  for (size_t row = 0; row < 12; ++row) {
    owned.push_back(MakeProblem(SpecFor(GetParam(), SpecOf(FactorRows()[row])),
                                TestSeed() + row));
    owned.back().problem = WithoutRefused(engine(), owned.back().problem);
    ASSERT_OK_AND_ASSIGN(ValidatedProblem problem,
                         Validate(owned.back().problem));
    ASSERT_OK_AND_ASSIGN(Results results, Run(owned.back().problem));
    valid.push_back(std::move(problem));
    alone.push_back(std::move(results));
  }
  std::vector<Results> together(alone.size());
  std::vector<AttentionJob> jobs(valid.size());
  for (size_t n = 0; n < jobs.size(); ++n) {
    ASSERT_OK_AND_ASSIGN(const ValidatedBatch batch,
                         ValidateBatch(owned[n].problem));
    ASSERT_OK_AND_ASSIGN(together[n], UnwrittenResults(valid[n].wanted, batch));
    jobs[n].problem = &valid[n];
    jobs[n].outputs = OutputsOf(together[n]);
  }
  backend.Run(absl::MakeSpan(jobs),
              {.workers = engine().workers(), .on_tile = nullptr});
  for (size_t n = 0; n < jobs.size(); ++n) {
    EXPECT_THAT(jobs[n].status, IsOk());
    EXPECT_TRUE(SameBits(together[n], alone[n])) << "problem " << n;
  }
}

INSTANTIATE_FOR_BACKENDS(DeterminismTest);

}  // namespace
}  // namespace attention::test
