// What a block of rows takes of a thread's memory.

#include <cstdint>

#include "core/cpu/job_run.h"
#include "core/cpu/rows/row_block.h"
#include "core/cpu/targets.h"
#include "core/validate.h"
#include "core/worker_pool.h"
#include "gtest/gtest.h"
#include "tests/unit/cpu/side_by_side.h"

namespace attention::cpu {
namespace {

struct Spec {
  int64_t length;
  int64_t width;
  DataType type = DataType::kFloat32;
  bool weights = false;
  bool gaussian = false;
  bool decodes_int8 = false;
};

// Views without memory: planning reads none.
ValidatedProblem ProblemOf(const Spec& spec) {
  const auto view = [&spec](const Shape& shape) {
    return ContiguousView(spec.type, shape, nullptr);
  };
  AttentionProblem problem;
  problem.query = view({1, 2, spec.length, spec.width});
  problem.key_value.push_back({view({1, 2, spec.length, spec.width}),
                               view({1, 2, spec.length, spec.width})});
  if (spec.decodes_int8) {
    problem.query = view({1, 16, 1, spec.width});
    KeyValueBlock& block = problem.key_value[0];
    block.key.type = block.value.type = DataType::kInt8;
    block.key.strides = block.value.strides =
        ContiguousView(DataType::kInt8, block.key.shape, nullptr).strides;
    block.key_scale = block.value_scale =
        ContiguousView(DataType::kFloat32, Shape{1, 2, spec.length}, nullptr);
    block.scales_checked = true;
  }
  problem.wanted.weights = spec.weights;
  if (spec.gaussian) problem.scoring = Gaussian{};
  return *Validate(problem);
}

size_t BytesOfBlock(const ValidatedProblem& problem, const Kernels& kernels) {
  WorkerPool workers(1);
  AttentionJob job;
  job.problem = &problem;
  const RunContext context{workers};
  JobRun run(job, context, kernels);
  return RowBlockBytes(run);
}

size_t BytesOfBlock(const Spec& spec, const Kernels& kernels) {
  return BytesOfBlock(ProblemOf(spec), kernels);
}

TEST(RowBlockMemoryTest, StaysBelowTwoMebibytesAtAnyLength) {
  for (const Kernels& kernels : Targets()) {
    for (const int64_t length : {1, 5, 100, 1024, 5000, 131072}) {
      for (const int64_t width : {1, 64, 256, 512}) {
        for (const DataType type : {DataType::kFloat32, DataType::kBFloat16}) {
          for (const bool weights : {false, true}) {
            EXPECT_LT(BytesOfBlock({length, width, type, weights}, kernels),
                      size_t{2} << 20)
                << kernels.name << " " << length << " " << width;
          }
        }
        EXPECT_LT(
            BytesOfBlock({.length = length, .width = width, .gaussian = true},
                         kernels),
            size_t{5} << 19)
            << kernels.name << " " << length << " " << width;
        EXPECT_LT(BytesOfBlock({.length = length,
                                .width = width,
                                .type = DataType::kBFloat16,
                                .decodes_int8 = true},
                               kernels),
                  size_t{2} << 20)
            << kernels.name << " " << length << " " << width;
      }
    }
  }
}

// Of heads that lie side by side, which take turns: each has a state.
TEST(RowBlockMemoryTest, StaysBelowTwoMebibytesWhereGroupsTakeTurns) {
  for (const Kernels& kernels : Targets()) {
    for (const int64_t rows : {1, 4, 8}) {
      for (const int64_t width : {1, 16, 32, 64, 96, 128, 256, 512}) {
        for (const DataType type : {DataType::kFloat32, DataType::kBFloat16,
                                    DataType::kInt8, DataType::kFloat8}) {
          const DataType of_query =
              IsScaledType(type) ? DataType::kBFloat16 : type;
          AttentionProblem problem;
          problem.query =
              ContiguousView(of_query, {1, rows * 64, 1, width}, nullptr);
          const TensorView keys = HeadsSideBySide(type, 5000, 64, width);
          KeyValueBlock block = {keys, keys};
          if (IsScaledType(type)) {
            block.key_scale = block.value_scale =
                ContiguousView(DataType::kFloat32, Shape{1, 64, 5000}, nullptr);
            block.scales_checked = true;
          }
          problem.key_value.push_back(block);
          EXPECT_LT(BytesOfBlock(*Validate(problem), kernels), size_t{2} << 20)
              << kernels.name << " " << Name(type) << " " << rows << " rows of "
              << width;
        }
      }
    }
  }
}

// Beyond that it is what some rows of queries and outputs, and a tile of
// values, take.
TEST(RowBlockMemoryTest, GrowsNoFasterThanTheWidth) {
  for (const Kernels& kernels : Targets()) {
    const size_t narrow =
        BytesOfBlock({.length = 1024, .width = 4096}, kernels);
    const size_t wide = BytesOfBlock({.length = 1024, .width = 16384}, kernels);
    EXPECT_LT(wide, 4 * narrow + (size_t{1} << 20)) << kernels.name;
    EXPECT_LT(wide, size_t{16} << 20) << kernels.name;
  }
}

}  // namespace
}  // namespace attention::cpu
