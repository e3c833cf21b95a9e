#include "core/cpu/scratch.h"

#include <cstdint>
#include <limits>

#include "core/cpu/care.h"
#include "core/cpu/careful_rows.h"
#include "core/cpu/job_run.h"
#include "core/cpu/kernels.h"
#include "core/cpu/plan.h"
#include "core/cpu/prepare.h"
#include "core/cpu/row_block.h"
#include "core/cpu/targets.h"
#include "gtest/gtest.h"

namespace attention::cpu {
namespace {

TEST(ScratchTest, CountsAsMuchAsItHandsOut) {
  Scratch count;
  EXPECT_EQ(count.Take<float>(3), nullptr);
  EXPECT_EQ(count.Take<double>(9), nullptr);
  std::byte* const memory = ThreadMemory(count.used());
  ASSERT_NE(memory, nullptr);
  Scratch scratch(memory);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(scratch.Take<float>(3)) % 64, 0U);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(scratch.Take<double>(9)) % 64, 0U);
  EXPECT_EQ(scratch.used(), count.used());
}

TEST(ScratchTest, SaysSoWhereMemoryCannotBeHad) {
  EXPECT_EQ(ThreadMemory(size_t{1} << 62), nullptr);
  EXPECT_NE(ThreadMemory(64), nullptr);
}

// Views without memory: planning reads none.
ValidatedProblem ProblemOf(int64_t length, int64_t width,
                           DataType type = DataType::kFloat32,
                           bool weights = false) {
  const auto view = [type](const Shape& shape) {
    return ContiguousView(type, shape, nullptr);
  };
  AttentionProblem problem;
  problem.query = view({1, 2, length, width});
  problem.key_value.push_back(
      {view({1, 2, length, width}), view({1, 2, length, width})});
  problem.wanted.weights = weights;
  return *Validate(problem);
}

TEST(PlanTest, KeepsScratchBelowTwoMebibytesAtAnyLengthAndWidth) {
  for (const int64_t* t = AvailableTargets(); *t != 0; ++t) {
    for (const int64_t length : {1, 100, 1024, 131072}) {
      for (const int64_t width : {1, 64, 256, 1000, 4096}) {
        const ValidatedProblem problem = ProblemOf(length, width);
        const Plan plan = MakePlan(problem, KernelsOf(*t));
        if (!plan.fits) continue;
        Scratch count;
        Prepare prepare(problem, plan, KernelsOf(*t), count);
        const CareDecision care(problem, plan, KernelsOf(*t), prepare, count);
        count.Take<float>((plan.row_block + plan.key_tile) *
                          plan.padded_value_width);
        EXPECT_LT(count.used(), size_t{2} << 20) << length << " " << width;
      }
    }
  }
}

// Operands of BF16 come beside those in FP32, for tiles that need these.
TEST(RowBlockMemoryTest, StaysBelowTwoMebibytesWithProductsOfBf16) {
  WorkerPool workers(1);
  for (const Kernels& kernels : Targets()) {
    for (const int64_t length : {5, 100, 1024, 5000, 131072}) {
      for (const int64_t width : {1, 64, 256, 1000, 1700, 2500, 4096}) {
        for (const bool weights : {false, true}) {
          const ValidatedProblem problem =
              ProblemOf(length, width, DataType::kBFloat16, weights);
          AttentionJob job;
          job.problem = &problem;
          const RunContext context{workers};
          JobRun run(job, context, kernels);
          if (!run.plan().fits) continue;
          EXPECT_LT(RowBlockBytes(run), size_t{2} << 20)
              << kernels.name << " " << length << " " << width;
        }
      }
    }
  }
}

// Rows that need care come after a block and use the same memory.
TEST(CarefulRowsMemoryTest, StaysBelowTwoMebibytesAtAnyLengthAndWidth) {
  WorkerPool workers(1);
  for (const int64_t* t = AvailableTargets(); *t != 0; ++t) {
    for (const int64_t length : {1, 100, 131072}) {
      for (const int64_t width : {1, 64, 256, 1000, 1700, 4096}) {
        const ValidatedProblem problem = ProblemOf(length, width);
        AttentionJob job;
        job.problem = &problem;
        const RunContext context{workers};
        JobRun run(job, context, KernelsOf(*t));
        if (!run.plan().fits) continue;
        Scratch count;
        const CarefulRows rows(run, count);
        EXPECT_LT(count.used(), size_t{2} << 20) << length << " " << width;
      }
    }
  }
}

TEST(PlanTest, DoesNotDependOnWhatElseRuns) {
  const Kernels& kernels = KernelsOf(*AvailableTargets());
  const ValidatedProblem problem = ProblemOf(1024, 64);
  const Plan a = MakePlan(problem, kernels);
  const Plan b = MakePlan(problem, kernels);
  EXPECT_EQ(a.row_block, b.row_block);
  EXPECT_EQ(a.key_tile, b.key_tile);
  EXPECT_EQ(a.splits, b.splits);
}

}  // namespace
}  // namespace attention::cpu
