// Devices that fail, and who is told of it.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/cuda/backend_fixture.h"

namespace attention::test {
namespace {

using ::testing::HasSubstr;

using LostDeviceTest = CudaBackendTest;

TEST_F(LostDeviceTest, ADeviceWithoutMemoryIsNotLost) {
  Start({.memory_limit = int64_t{1} << 30});
  faults_[0]->memory = 1000;
  EXPECT_EQ(RunProblem().status().code(), absl::StatusCode::kResourceExhausted);
  faults_[0]->memory = int64_t{1} << 30;
  EXPECT_THAT(RunProblem().status(), IsOk());
}

TEST_F(LostDeviceTest, AnErrorOfTheDeviceIsTheJobsOwn) {
  Start({});
  EXPECT_THAT(engine_->backends()[0]->health(), IsOk());
  faults_[0]->launches_left = 1;
  EXPECT_EQ(RunProblem().status().code(), absl::StatusCode::kInternal);
}

TEST_F(LostDeviceTest, ALostDeviceIsToldWithItsReason) {
  Start({});
  faults_[0]->launches_left = 0;
  ASSERT_FALSE(RunProblem().ok());
  const absl::Status health = engine_->backends()[0]->health();
  EXPECT_EQ(health.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(static_cast<std::string>(health.message()),
              HasSubstr("the device is lost: attend"));
  EXPECT_EQ(RunProblem().status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(LostDeviceTest, ALostDeviceIsNotAsked) {
  Start({});
  ASSERT_THAT(RunProblem(), IsOk());
  faults_[0]->launches_left = 0;
  ASSERT_FALSE(RunProblem().ok());
  const DeviceFigures figures = engine_->backends()[0]->ReadDevices().at(0);
  EXPECT_FALSE(figures.healthy);
  EXPECT_EQ(figures.free, std::nullopt);
  EXPECT_EQ(figures.problems, 1);
}

TEST_F(LostDeviceTest, ALostDeviceIsToldOnce) {
  Start({.devices = 2});
  faults_[1]->launches_left = 0;
  for (int n = 0; n < 4; ++n) RunProblem().IgnoreError();
  ASSERT_EQ(told_.size(), 1U);
  EXPECT_EQ(told_[0].health.code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(told_[0].serving);
}

TEST_F(LostDeviceTest, TheLastDeviceToGoIsToldAsTheEnd) {
  Start({.devices = 2});
  faults_[0]->launches_left = 0;
  faults_[1]->launches_left = 0;
  for (int n = 0; n < 4; ++n) RunProblem().IgnoreError();
  ASSERT_EQ(told_.size(), 2U);
  EXPECT_EQ(told_[1].health.code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(told_[1].serving);
}

TEST_F(LostDeviceTest, AJobThatIsRefusedTellsNothing) {
  Start({.memory_limit = 1000});
  EXPECT_FALSE(RunProblem().ok());
  EXPECT_THAT(told_, ::testing::IsEmpty());
}

TEST_F(LostDeviceTest, OtherBackendsTakeOverFromALostDevice) {
  Start({.backend = "auto"});
  faults_[0]->launches_left = 0;
  EXPECT_EQ(RunJob().backend, "cuda_test");
  const AttentionJob job = RunJob();
  EXPECT_THAT(job.status, IsOk());
  EXPECT_NE(job.backend, "cuda_test");
}

TEST_F(LostDeviceTest, TheOtherDeviceTakesOverFromALostOne) {
  Start({.devices = 2});
  faults_[0]->launches_left = 0;
  int failed = 0;
  for (int n = 0; n < 6; ++n) failed += RunProblem().ok() ? 0 : 1;
  EXPECT_EQ(failed, 1);
  EXPECT_FALSE(engine_->backends()[0]->health().ok());
}

// A stop is requested at the second look, while the device is waited for.

TEST_F(LostDeviceTest, ADeviceThatDoesNotStopIsGivenUp) {
  Start({.stop_grace = std::chrono::nanoseconds(0)});
  HaveMemory();
  faults_[0]->hangs_in = "attend";
  std::stop_source stop;
  int looks = 0;
  const AttentionJob job = RunJob(stop.get_token(), [&] {
    if (++looks == 2) stop.request_stop();
  });
  EXPECT_EQ(job.status.code(), absl::StatusCode::kCancelled) << job.status;
  ASSERT_EQ(told_.size(), 1U);
  EXPECT_EQ(told_[0].health.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(static_cast<std::string>(told_[0].health.message()),
              HasSubstr("its work did not end within 0 ms after it was to "
                        "stop"));
}

// So that what it was given by then is not long.
TEST_F(LostDeviceTest, ADeviceIsGivenFewBandsOfProductsAtOnce) {
  owned_ = MakeProblem({.batch = 1,
                        .query_heads = 1,
                        .query_length = 40,
                        .wanted = {.weights = true}},
                       TestSeed());
  Start({.plan = {.least_gemm_elements = 1, .score_bytes = 1, .slice_work = 1},
         .stop_grace = std::chrono::nanoseconds(0)});
  HaveMemory();
  faults_[0]->hangs_in = "softmax_rows";
  std::stop_source stop;
  int looks = 0;
  const AttentionJob job = RunJob(stop.get_token(), [&] {
    if (++looks == 100) stop.request_stop();
  });
  EXPECT_EQ(job.status.code(), absl::StatusCode::kCancelled) << job.status;
  EXPECT_EQ(job.tiles_total, 40);
  EXPECT_EQ(job.tiles_computed, 1);
}

TEST_F(LostDeviceTest, ADeviceIsGivenUpInSlicesToo) {
  owned_ = MakeProblem({.batch = 6, .query_length = 9}, TestSeed());
  Start(
      {.plan = {.slice_bytes = 1}, .stop_grace = std::chrono::nanoseconds(0)});
  HaveMemory();
  faults_[0]->hangs_in = "attend";
  std::stop_source stop;
  int looks = 0;
  const AttentionJob job = RunJob(stop.get_token(), [&] {
    if (++looks == 4) stop.request_stop();
  });
  EXPECT_EQ(job.status.code(), absl::StatusCode::kCancelled) << job.status;
  EXPECT_FALSE(engine_->backends()[0]->health().ok());
}

// Others' jobs run through while this one's work stands behind them. Two looks
// come before its launches.
TEST_F(LostDeviceTest, ADeviceThatIsBusyWithOthersIsNotGivenUp) {
  Start({.stop_grace = std::chrono::nanoseconds(0)});
  HaveMemory();
  faults_[0]->queues_in = "attend";
  faults_[0]->queues_behind = 10;
  std::stop_source stop;
  int looks = 0;
  const AttentionJob job = RunJob(stop.get_token(), [&] {
    if (++looks == 3) stop.request_stop();
    if (looks >= 3) {
      EXPECT_THAT(RunProblem().status(), IsOk());
    }
  });
  EXPECT_GT(looks, 3);
  EXPECT_THAT(job.status, IsOk());
  EXPECT_THAT(engine_->backends()[0]->health(), IsOk());
}

TEST(WatchTest, ADeviceThatGoesOnWithOthersAloneIsGivenUpInTheEnd) {
  const auto faults = std::make_shared<cuda::Faults>();
  const auto device =
      cuda::MakeEmulatedDevice(cuda::EmulatedProperties(), faults);
  ASSERT_OK_AND_ASSIGN(const auto stream, device->NewStream());
  faults->hangs_in = "attend";
  ASSERT_THAT(stream->Launched("attend", 0), IsOk());
  std::atomic<int64_t> marks = 0;
  std::stop_source stop;
  stop.request_stop();
  stream->SetWatch({.look = [&] { ++marks; },
                    .stop = stop.get_token(),
                    .grace = std::chrono::hours(1),
                    .patience = std::chrono::milliseconds(20),
                    .marks = &marks});
  EXPECT_EQ(stream->Synchronize().code(), absl::StatusCode::kCancelled);
  EXPECT_GT(marks, 0);
  EXPECT_FALSE(device->Health().ok());
}

TEST_F(LostDeviceTest, ADeviceThatWasGivenUpComputesNothing) {
  Start({.stop_grace = std::chrono::nanoseconds(0), .backend = "auto"});
  HaveMemory();
  faults_[0]->hangs_in = "attend";
  std::stop_source stop;
  int looks = 0;
  RunJob(stop.get_token(), [&] {
    if (++looks == 2) stop.request_stop();
  });
  const AttentionJob job = RunJob();
  EXPECT_THAT(job.status, IsOk());
  EXPECT_NE(job.backend, "cuda_test");
}

}  // namespace
}  // namespace attention::test
