// Jobs that go through the device in slices of their batch, heads or rows.

#include <atomic>
#include <cstdint>
#include <stop_token>

#include "gtest/gtest.h"
#include "tests/support/tolerance.h"
#include "tests/unit/cuda/backend_fixture.h"

namespace attention::test {
namespace {

class CudaSlicesTest : public CudaBackendTest {
 protected:
  // As a whole, and in the slices that `plan` makes on two streams.
  void ExpectBitsOfTheWhole(const ProblemSpec& spec,
                            const cuda::PlanOptions& plan) {
    owned_ = MakeProblem(spec, TestSeed());
    Start({});
    ASSERT_OK_AND_ASSIGN(const Results whole, RunProblem());
    EXPECT_EQ(faults_.back()->streams, 1);
    Start({.plan = plan});
    ASSERT_OK_AND_ASSIGN(const Results sliced, RunProblem());
    EXPECT_TRUE(SameBits(sliced, whole));
    EXPECT_EQ(faults_.back()->streams, 2);
  }
};

TEST_F(CudaSlicesTest, SlicesOfTheBatchGiveTheBitsOfTheWhole) {
  ProblemSpec spec;
  spec.batch = 5;
  spec.query_length = 20;
  spec.key_length = 30;
  spec.valid_lens = LengthsShape::kPerBatch;
  spec.bias = MaskExtents::kAll;
  spec.query_offsets_type = DataType::kInt32;
  spec.window.left = 9;
  spec.alibi_slopes = PerHeadShape::kPerBatchAndHead;
  spec.sinks = PerHeadShape::kPerBatchAndHead;
  spec.wanted = {.weights = true, .lse = true};
  ExpectBitsOfTheWhole(spec, {.slice_bytes = int64_t{2} * 20 * 30 * 4 * 3});
}

ProblemSpec OneEntryOfManyHeads() {
  ProblemSpec spec;
  spec.batch = 1;
  spec.query_heads = 10;
  spec.kv_heads = 5;
  spec.query_length = 70;
  spec.key_length = 90;
  spec.valid_lens = LengthsShape::kPerRow;
  spec.wanted.weights = false;
  return spec;
}

TEST_F(CudaSlicesTest, SlicesOfTheHeadsOfOneEntryGiveTheBitsOfTheWhole) {
  ProblemSpec spec = OneEntryOfManyHeads();
  spec.attend_mask = MaskExtents::kAll;
  spec.bias = MaskExtents::kAll;
  spec.alibi_slopes = PerHeadShape::kPerHead;
  spec.sinks = PerHeadShape::kPerBatchAndHead;
  for (const DataType type : {DataType::kFloat32, DataType::kBFloat16}) {
    for (const bool weights : {false, true}) {
      spec.type = type;
      spec.wanted.weights = weights;
      ExpectBitsOfTheWhole(spec, {.slice_bytes = int64_t{2} * 2 * 70 * 90 * 5});
    }
  }
}

TEST_F(CudaSlicesTest, HeadsWhoseBitsFollowFromOthersStayTogether) {
  ProblemSpec few_rows = OneEntryOfManyHeads();
  few_rows.query_length = 9;  // keys are split, more often for fewer heads
  ProblemSpec parameters = OneEntryOfManyHeads();
  parameters.scoring = ScoringKind::kBilinear;
  for (const ProblemSpec& spec : {few_rows, parameters}) {
    owned_ = MakeProblem(spec, TestSeed());
    Start({.plan = {.slice_bytes = 1}});
    ASSERT_OK_AND_ASSIGN(const Results found, RunProblem());
    EXPECT_TRUE(Matches(owned_.problem, found));
    EXPECT_EQ(faults_.back()->streams, 1);
  }
}

// Rows are cut to stop a job that computes long, whatever it brings.
constexpr cuda::PlanOptions kLongWork = {.slice_work = 1};

ProblemSpec OneEntryOfManyRows() {
  ProblemSpec spec;
  spec.batch = 1;
  spec.query_heads = 2;
  spec.kv_heads = 1;
  spec.query_length = 300;
  spec.key_length = 70;
  spec.query_offsets_type = DataType::kInt32;
  spec.causal = Causal::kTopLeft;
  spec.window.left = 90;
  spec.alibi_slopes = PerHeadShape::kPerHead;
  return spec;
}

TEST_F(CudaSlicesTest, SlicesOfTheRowsGiveTheBitsOfTheWhole) {
  ProblemSpec every = OneEntryOfManyRows();
  every.valid_lens = LengthsShape::kPerRow;
  every.attend_mask = MaskExtents::kAll;
  every.bias = MaskExtents::kAll;
  ProblemSpec bf16 = every;
  bf16.type = DataType::kBFloat16;
  bf16.wanted.weights = false;
  ProblemSpec additive = OneEntryOfManyRows();
  additive.scoring = ScoringKind::kAdditive;
  additive.per_head_parameters = true;
  ProblemSpec one_head = OneEntryOfManyRows();
  one_head.rank = 2;
  one_head.query_heads = 1;
  for (const ProblemSpec& spec : {every, bf16, additive, one_head}) {
    ExpectBitsOfTheWhole(spec, kLongWork);
  }
}

TEST_F(CudaSlicesTest, DropoutCountsEntriesHeadsAndRowsOfTheWhole) {
  ProblemSpec rows = OneEntryOfManyRows();
  ProblemSpec heads = OneEntryOfManyHeads();
  ProblemSpec batch = OneEntryOfManyHeads();
  batch.batch = 3;
  for (ProblemSpec spec : {rows, heads, batch}) {
    spec.dropout = {.training = true, .p = 0.5, .seed = 3};
    spec.wanted = {.weights = true, .weights_after_dropout = true};
    ExpectBitsOfTheWhole(spec, kLongWork);
  }
}

TEST_F(CudaSlicesTest, AStopEndsOneLongHeadBetweenItsRows) {
  ProblemSpec spec = OneEntryOfManyRows();
  spec.query_heads = 1;
  spec.wanted.weights = false;
  owned_ = MakeProblem(spec, TestSeed());
  std::stop_source stop;
  Start({.plan = kLongWork, .on_tile = [&] { stop.request_stop(); }});
  const AttentionJob job = RunJob(stop.get_token());
  EXPECT_EQ(job.status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(job.tiles_computed, 1);
}

TEST_F(CudaSlicesTest, WhatDoesNotFitInSlicesIsComputedAsAWhole) {
  ProblemSpec spec;
  spec.batch = 3;
  spec.wanted.weights = true;
  owned_ = MakeProblem(spec, TestSeed());
  // Two slices have a workspace each.
  const cuda::PlanOptions plan = {.least_gemm_elements = 1, .slice_bytes = 1};
  Start({.memory_limit = cuda::kWorkspaceBytes * 3 / 2, .plan = plan});
  ASSERT_OK_AND_ASSIGN(const Results whole, RunProblem());
  EXPECT_EQ(faults_.back()->streams, 1);
  Start({.plan = plan});
  ASSERT_OK_AND_ASSIGN(const Results sliced, RunProblem());
  EXPECT_EQ(faults_.back()->streams, 2);
  EXPECT_TRUE(SameBits(sliced, whole));
}

TEST_F(CudaSlicesTest, AFailureInOneSliceIsTheJobs) {
  owned_ = MakeProblem({.batch = 6, .query_length = 9}, TestSeed());
  for (const int64_t launches : {0, 1, 4, 9}) {
    Start({.plan = {.slice_bytes = 1}});
    faults_.back()->launches_left = launches;
    EXPECT_EQ(RunProblem().status().code(), absl::StatusCode::kInternal)
        << launches;
  }
}

TEST_F(CudaSlicesTest, AStopBetweenSlicesEndsTheJob) {
  owned_ = MakeProblem({.batch = 6, .query_length = 9}, TestSeed());
  std::stop_source stop;
  std::atomic<int64_t> tiles = 0;
  Start({.plan = {.slice_bytes = 1}, .on_tile = [&] {
           if (++tiles == 5) stop.request_stop();
         }});
  const AttentionJob job = RunJob(stop.get_token());
  EXPECT_EQ(job.status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(job.tiles_computed, 5);
}

}  // namespace
}  // namespace attention::test
