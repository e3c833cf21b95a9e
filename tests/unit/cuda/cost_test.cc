// Which backend "auto" takes for a problem.

#include "core/cost.h"

#include <chrono>
#include <string>
#include <vector>

#include "core/engine.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/cuda/backend_fixture.h"
#include "tests/unit/store/rows.h"

namespace attention::test {
namespace {

using CostTest = CudaBackendTest;

// Of a device far away, which computes ten times as fast.
absl::StatusOr<BackendCost> MadeUp(const Backend& backend, WorkerPool&,
                                   std::chrono::milliseconds) {
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
  Start({});
  const Backend& backend = *engine_->backends()[0];
  EXPECT_EQ(Bytes(valid, backend), 4 * 10 * 64 * 4);
  const ValidatedProblem* const problems[] = {&valid, &valid};
  const BackendCost cost = {
      .of_problem = 3, .of_multiply_add = 2, .of_byte = 0.5};
  EXPECT_EQ(cost.Of(problems, backend),
            3 + 2 * (2 * Work(valid) + Bytes(valid, backend) / 2));
}

// A device computes 64 of them in one launch; weights are computed alone.
TEST_F(CostTest, WhatSharesALaunchCountsOnce) {
  const OwnedProblem owned = Square(1);
  const ValidatedProblem shares = Validate(owned.problem).value();
  ValidatedProblem alone = shares;
  alone.wanted.weights = true;
  Start({});
  const Backend& backend = *engine_->backends()[0];
  std::vector<const ValidatedProblem*> problems(64, &shares);
  EXPECT_EQ(backend.CountLaunches(problems), 1);
  problems.resize(67, &alone);
  EXPECT_EQ(backend.CountLaunches(problems), 1 + 3);
}

TEST_F(CostTest, ALaunchTakesWhatItHasRoomFor) {
  const OwnedProblem owned = Square(64);
  const ValidatedProblem valid = Validate(owned.problem).value();
  Start({.plan = {.launch_bytes = int64_t{2} * 4 * 64 * 64 * 4 + 4096}});
  const std::vector<const ValidatedProblem*> problems(6, &valid);
  EXPECT_EQ(engine_->backends()[0]->CountLaunches(problems), 3);
}

// Each takes the CPU 7 us. A device takes 30 for any launch, and 3 for each.
TEST_F(CostTest, AutoTakesADeviceForManyEntriesOfOneLaunch) {
  if (BackendNames().size() < 4) GTEST_SKIP() << "no kernels for this machine";
  Start({.backend = "auto", .measure_cost = MadeUp});
  const OwnedProblem owned = Square(20);
  const ValidatedProblem valid = Validate(owned.problem).value();
  std::vector<Tensor> outputs;
  std::vector<AttentionJob> jobs(64);
  for (AttentionJob& job : jobs) {
    outputs.push_back(
        Tensor::Create(DataType::kFloat32, valid.output_shape).value());
    job.problem = &valid;
    job.outputs.output = outputs.back().mutable_view();
  }
  EXPECT_THAT(engine_->Run(absl::MakeSpan(jobs)), IsOk());
  EXPECT_EQ(jobs[0].backend, "cuda_test");
  EXPECT_THAT(engine_->Run(absl::MakeSpan(jobs).first(1)), IsOk());
  EXPECT_EQ(jobs[0].backend, "cpu");
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

// That of a decoded row over so many keys of a sequence; `kept`: whether its
// pages have the numbers by which they stay.
std::string BackendOf(const Engine& engine, int64_t keys, bool kept) {
  const auto sequence = store::testing::MakeSequence(
      {.heads = 1, .key_width = 64, .value_width = 64});
  EXPECT_THAT(store::testing::AppendRows(*sequence, keys, 1).status(), IsOk());
  const store::Snapshot snapshot = sequence->TakeSnapshot(0).value();
  OwnedProblem owned = Square(1);
  owned.problem.key_value = snapshot.Blocks();
  if (!kept) {
    for (KeyValueBlock& block : owned.problem.key_value) block.page = 0;
  }
  const ValidatedProblem valid = Validate(owned.problem).value();
  Tensor output = Tensor::Create(DataType::kFloat32, {1, 1, 1, 64}).value();
  AttentionJob job;
  job.problem = &valid;
  job.outputs.output = output.mutable_view();
  EXPECT_THAT(engine.Run(job), IsOk());
  return static_cast<std::string>(job.backend);
}

// 4,000 keys take the CPU 153 us, 102 of them to read them. To bring them to
// the device takes 205 us, and all else there 35.
TEST_F(CostTest, KeysThatStayOnTheDeviceDoNotTravel) {
  if (BackendNames().size() < 4) GTEST_SKIP() << "no kernels for this machine";
  Start({.memory_limit = int64_t{8} << 20,
         .backend = "auto",
         .measure_cost = MadeUp});
  for (int turn = 0; turn < 2; ++turn) {  // whether they are there or not
    EXPECT_EQ(BackendOf(*engine_, 4000, /*kept=*/false), "cpu");
    EXPECT_EQ(BackendOf(*engine_, 4000, /*kept=*/true), "cuda_test");
    EXPECT_EQ(BackendOf(*engine_, 40, /*kept=*/true), "cpu");
  }
  // More than half of the memory has room for: brought for each request.
  EXPECT_EQ(BackendOf(*engine_, 9000, /*kept=*/true), "cpu");
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

TEST_F(CostTest, ADeviceThatCannotBeMeasuredIsNotUsed) {
  Start({.memory_limit = 1000, .backend = "auto", .measure_cost = MeasureCost});
  const UnusedBackend& unused = engine_->unused().back();
  EXPECT_EQ(unused.name, "cuda_test");
  EXPECT_THAT(unused.reason,
              StatusIs(absl::StatusCode::kResourceExhausted,
                       ::testing::HasSubstr("the limit of 1000")));
  EXPECT_NE(RunJob().backend, "cuda_test");
}

// As one that passed its self check, and hangs at a problem that is larger.
TEST_F(CostTest, ADeviceThatHangsWhileItIsMeasuredIsNotUsed) {
  Start({.stop_grace = std::chrono::nanoseconds(0),
         .backend = "auto",
         .measure_cost = MeasureCost,
         .patience = std::chrono::milliseconds(50),
         .hangs_in = "attend"});
  const UnusedBackend& unused = engine_->unused().back();
  EXPECT_EQ(unused.name, "cuda_test");
  EXPECT_THAT(
      unused.reason,
      StatusIs(absl::StatusCode::kDeadlineExceeded,
               ::testing::AllOf(::testing::HasSubstr("measure its costs"),
                                ::testing::HasSubstr("within 50 ms"))));
  EXPECT_NE(RunJob().backend, "cuda_test");
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
