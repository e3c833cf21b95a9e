// Which backend "auto" takes for a problem.

#include "core/cost.h"

#include <string>

#include "core/engine.h"
#include "gtest/gtest.h"
#include "tests/unit/cuda/backend_fixture.h"

namespace attention::test {
namespace {

using CostTest = CudaBackendTest;

// Of a device far away, which computes ten times as fast.
absl::StatusOr<BackendCost> MadeUp(const Backend& backend, WorkerPool&) {
  if (backend.name() == "cuda_test") {
    return BackendCost{
        .of_problem = 30'000, .of_multiply_add = 0.01, .of_byte = 0.1};
  }
  return BackendCost{
      .of_problem = 1'000, .of_multiply_add = 0.1, .of_byte = 0.05};
}

OwnedProblem Square(int64_t length) {
  return MakeProblem({.batch = 1,
                      .query_length = length,
                      .key_length = length,
                      .width = 64,
                      .value_width = 64,
                      .wanted = {}},
                     TestSeed());
}

TEST_F(CostTest, WorkAndBytesFollowFromExtents) {
  const OwnedProblem owned = Square(10);
  const ValidatedProblem valid = Validate(owned.problem).value();
  EXPECT_EQ(Work(valid), 10 * 10 * (64 + 64));
  EXPECT_EQ(Bytes(valid), 4 * 10 * 64 * 4);
  const ValidatedProblem* const problems[] = {&valid, &valid};
  const BackendCost cost = {
      .of_problem = 3, .of_multiply_add = 2, .of_byte = 0.5};
  EXPECT_EQ(cost.Of(problems), 2 * (3 + 2 * Work(valid) + Bytes(valid) / 2));
}

TEST_F(CostTest, AutoTakesTheOneThatShouldBeDoneFirst) {
  if (BackendNames().size() < 4) GTEST_SKIP() << "no kernels for this machine";
  Start({.backend = "auto", .measure_cost = MadeUp});
  for (const auto& [length, name] :
       {std::pair(8, "cpu"), std::pair(32, "cpu"), std::pair(128, "cuda_test"),
        std::pair(8, "cpu")}) {
    owned_ = Square(length);
    const AttentionJob job = RunJob();
    EXPECT_THAT(job.status, IsOk());
    EXPECT_EQ(job.backend, name) << length;
  }
}

TEST_F(CostTest, SmallProblemsThatStayOnTheCpuAreQuick) {
  if (BackendNames().size() < 4) GTEST_SKIP() << "no kernels for this machine";
  Start({.backend = "auto", .measure_cost = MadeUp});
  const OwnedProblem small = Square(1);
  EXPECT_TRUE(engine_->IsQuick(Validate(small.problem).value()));
}

TEST_F(CostTest, TensorsOnTheDeviceStayThere) {
  Start({.backend = "auto", .measure_cost = MadeUp});
  owned_ = Square(1);
  owned_.problem.query.space = MemorySpace::kCudaDevice;
  EXPECT_EQ(RunJob().backend, "cuda_test");
  EXPECT_FALSE(engine_->IsQuick(Validate(owned_.problem).value()));
}

TEST_F(CostTest, ABackendThatIsNamedTakesEverything) {
  Start({.measure_cost = MadeUp});
  owned_ = Square(1);
  EXPECT_EQ(RunJob().backend, "cuda_test");
  EXPECT_FALSE(engine_->CostOf(*engine_->backends()[0]).has_value());
}

TEST_F(CostTest, ABackendThatCannotBeMeasuredKeepsItsPlace) {
  Start({.memory_limit = 1000, .backend = "auto", .measure_cost = MeasureCost});
  EXPECT_FALSE(engine_->CostOf(*engine_->backends()[0]).has_value());
  EXPECT_FALSE(Run().ok());
}

// The reference stays out: it is for what no other takes.
TEST_F(CostTest, TheDeviceAndTheCpuAreMeasured) {
  if (BackendNames().size() < 4) GTEST_SKIP() << "no kernels for this machine";
  Start({.backend = "auto", .measure_cost = MeasureCost});
  const auto& backends = engine_->backends();
  const auto emulated = engine_->CostOf(*backends[0]);
  const auto cpu = engine_->CostOf(*backends[1]);
  ASSERT_TRUE(emulated && cpu);
  EXPECT_GT(emulated->of_problem, 0);
  EXPECT_GT(cpu->of_problem, 0);
  EXPECT_FALSE(engine_->CostOf(*backends.back()).has_value());
}

}  // namespace
}  // namespace attention::test
