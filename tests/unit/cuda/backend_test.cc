// The backend as a whole, on emulated devices: what it does beside computing.
// Whether its results are right is asked by tests/parity.

#include <atomic>
#include <barrier>
#include <cstdint>
#include <limits>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/cuda/device_runner.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/tolerance.h"
#include "tests/unit/cuda/backend_fixture.h"

namespace attention::test {
namespace {

using ::testing::HasSubstr;

TEST_F(CudaBackendTest, SaysWhichBackendAndKernelAnswered) {
  Start({});
  const AttentionJob job = RunJob();
  EXPECT_THAT(job.status, IsOk());
  EXPECT_EQ(job.backend, "cuda_test");
  EXPECT_EQ(job.kernel, "fp32_tiles");
}

TEST_F(CudaBackendTest, NamesItsDevices) {
  Start({.devices = 2});
  EXPECT_EQ(engine_->backends()[0]->instruction_set(),
            "sm_90 (emulated), sm_90 (emulated)");
}

TEST_F(CudaBackendTest, ListsItsDevicesWithTheirMemory) {
  Start({.devices = 2});
  const std::vector<BackendDevice> devices = engine_->backends()[0]->devices();
  ASSERT_EQ(devices.size(), 2U);
  EXPECT_EQ(devices[0].name, "emulated");
  EXPECT_EQ(devices[0].memory, int64_t{1} << 40);
}

TEST_F(CudaBackendTest, TellsWhatItsDevicesDo) {
  Start({.devices = 2, .memory_limit = int64_t{1} << 30});
  faults_[0]->memory = int64_t{1} << 32;
  ASSERT_THAT(RunJob().status, IsOk());
  const std::vector<DeviceFigures> figures =
      engine_->backends()[0]->ReadDevices();
  ASSERT_EQ(figures.size(), 2U);
  EXPECT_EQ(figures[0].name, "emulated");
  EXPECT_TRUE(figures[0].healthy);
  EXPECT_EQ(figures[0].problems, 1);
  EXPECT_EQ(figures[0].memory, int64_t{1} << 40);
  EXPECT_GT(figures[0].held, 0);
  EXPECT_EQ(figures[0].held, faults_[0]->allocated);
  EXPECT_EQ(figures[0].free, (int64_t{1} << 32) - figures[0].held);
  EXPECT_EQ(figures[0].limit, int64_t{1} << 30);
  EXPECT_EQ(figures[1].problems, 0);
  EXPECT_EQ(figures[1].held, 0);
}

TEST_F(CudaBackendTest, ADeviceThatComputedNothingIsNotAsked) {
  Start({});
  const std::vector<DeviceFigures> figures =
      engine_->backends()[0]->ReadDevices();
  ASSERT_EQ(figures.size(), 1U);
  EXPECT_EQ(figures[0].free, std::nullopt);
  EXPECT_EQ(figures[0].limit, std::nullopt);
}

TEST_F(CudaBackendTest, EvenTheSmallestProblemIsForAWorker) {
  Start({});
  const OwnedProblem small =
      MakeProblem({.query_length = 1, .key_length = 1}, TestSeed());
  EXPECT_FALSE(engine_->IsQuick(Validate(small.problem).value()));
}

TEST_F(CudaBackendTest, CountsItsLaunchesAsTiles) {
  std::atomic<int64_t> tiles = 0;
  Start({.plan = {.slice_bytes = 1}, .on_tile = [&] { ++tiles; }});
  owned_ = MakeProblem({.batch = 4}, TestSeed());
  const AttentionJob job = RunJob();
  EXPECT_GT(job.tiles_total, 5);
  EXPECT_EQ(job.tiles_computed, job.tiles_total);
  EXPECT_EQ(tiles, job.tiles_total);
}

// Of which only the output is wanted: one kernel's.
OwnedProblem OneLaunch() { return MakeProblem({.wanted = {}}, TestSeed()); }

OwnedProblem WithNan() {
  OwnedProblem owned = OneLaunch();
  Fill(owned.problem.key_value[0].value,
       std::numeric_limits<double>::quiet_NaN());
  return owned;
}

TEST_F(CudaBackendTest, FiniteResultsTakeOneLaunch) {
  Start({});
  owned_ = OneLaunch();
  EXPECT_EQ(RunJob().tiles_computed, 1);
}

TEST_F(CudaBackendTest, RowsThatAreNotFiniteTakeASecondLaunch) {
  Start({});
  owned_ = WithNan();
  const AttentionJob job = RunJob();
  EXPECT_EQ(job.tiles_computed, 2);
  EXPECT_EQ(job.tiles_total, 2);
}

TEST_F(CudaBackendTest, AJobDoesNotCountTheMarksOfTheOneBefore) {
  Start({});
  owned_ = WithNan();
  ASSERT_EQ(RunJob().tiles_computed, 2);
  owned_ = OneLaunch();
  EXPECT_EQ(RunJob().tiles_computed, 1);
}

TEST_F(CudaBackendTest, StopsBetweenLaunches) {
  std::stop_source stop;
  std::atomic<int64_t> tiles = 0;
  Start({.plan = {.slice_bytes = 1}, .on_tile = [&] {
           if (++tiles == 3) stop.request_stop();
         }});
  const AttentionJob job = RunJob(stop.get_token());
  EXPECT_EQ(job.status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(job.tiles_computed, 3);
}

TEST_F(CudaBackendTest, BeforeALaunchAStopMayBeRequested) {
  std::stop_source stop;
  int64_t launches = 0;
  Start({.plan = {.slice_bytes = 1}});
  HaveMemory();
  const AttentionJob job = RunJob(stop.get_token(), [&] {
    if (++launches == 3) stop.request_stop();
  });
  EXPECT_EQ(job.status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(job.tiles_computed, 2);
}

TEST_F(CudaBackendTest, ComputesAfterAJobThatWasStopped) {
  std::stop_source stop;
  stop.request_stop();
  Start({});
  EXPECT_EQ(RunJob(stop.get_token()).status.code(),
            absl::StatusCode::kCancelled);
  ASSERT_OK_AND_ASSIGN(const Results results, RunProblem());
  EXPECT_TRUE(Matches(owned_.problem, results));
}

TEST_F(CudaBackendTest, TheSecondJobTakesNoMoreMemory) {
  Start({});
  ASSERT_THAT(RunProblem().status(), IsOk());
  const int64_t allocated = faults_[0]->allocated;
  EXPECT_GT(allocated, 0);
  ASSERT_THAT(RunProblem().status(), IsOk());
  EXPECT_EQ(faults_[0]->allocated, allocated);
  EXPECT_EQ(faults_[0]->streams, 1);
}

TEST_F(CudaBackendTest, ASmallProblemIsOneCopyEachWay) {
  Start({});
  owned_ = MakeProblem({.valid_lens = LengthsShape::kPerRow,
                        .attend_mask = MaskExtents::kAll,
                        .bias = MaskExtents::kAll,
                        .wanted = {}},
                       TestSeed());
  ASSERT_THAT(RunProblem().status(), IsOk());
  EXPECT_EQ(faults_[0]->copies, 2);
}

TEST_F(CudaBackendTest, GivesAllMemoryBackInTheEnd) {
  Start({});
  ASSERT_THAT(RunProblem().status(), IsOk());
  engine_.reset();
  EXPECT_EQ(faults_[0]->allocated, 0);
}

TEST_F(CudaBackendTest, WithoutCublasTilesComputeWhatItWould) {
  Start({.plan = {.least_gemm_elements = 1}});
  owned_ = MakeProblem({.wanted = {.weights = true}}, TestSeed());
  EXPECT_EQ(RunJob().kernel, "cublas_gemm");
  faults_[0]->without_gemm = true;
  EXPECT_EQ(RunJob().kernel, "fp32_tiles");
  ASSERT_OK_AND_ASSIGN(const Results results, RunProblem());
  EXPECT_TRUE(Matches(owned_.problem, results));
}

TEST_F(CudaBackendTest, MoreThanTheMemoryLimitIsRefused) {
  Start({.memory_limit = 1000});
  const absl::Status status = RunProblem().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(static_cast<std::string>(status.message()),
              HasSubstr("the limit of 1000"));
}

TEST_F(CudaBackendTest, HostMemoryIsPinnedOnceForAllDevices) {
  Start({.devices = 2});
  std::vector<std::byte> memory(4096);
  auto pinned = engine_->PinHostMemory(absl::MakeSpan(memory));
  ASSERT_NE(pinned, nullptr);
  EXPECT_EQ(faults_[0]->pinned + faults_[1]->pinned, 1);
  EXPECT_TRUE(pinned->Release());
  EXPECT_EQ(faults_[0]->pinned + faults_[1]->pinned, 0);
}

TEST_F(CudaBackendTest, DevicesTakeTurns) {
  Start({.devices = 2});
  ASSERT_THAT(RunProblem().status(), IsOk());
  ASSERT_THAT(RunProblem().status(), IsOk());
  EXPECT_EQ(faults_[0]->streams, 1);
  EXPECT_EQ(faults_[1]->streams, 1);
}

TEST_F(CudaBackendTest, AnIdleDeviceKeepsFewStreams) {
  constexpr int64_t kKept = cuda::DeviceRunner::kKeptStreams;
  constexpr int64_t kJobs = kKept + 3;
  std::barrier<> at_once(kJobs);
  Start({.on_tile = [&] { at_once.arrive_and_wait(); }});
  owned_ = OneLaunch();
  for (const int64_t streams : {kJobs, kJobs + kJobs - kKept}) {
    std::vector<std::thread> threads;
    threads.reserve(kJobs);
    for (int64_t n = 0; n < kJobs; ++n) threads.emplace_back([&] { RunJob(); });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(faults_[0]->streams, streams);
  }
}

TEST_F(CudaBackendTest, JobsAtOnceGiveWhatTheyGiveAlone) {
  Start({.devices = 2, .memory_limit = int64_t{2} << 20});
  ASSERT_OK_AND_ASSIGN(const Results alone, RunProblem());
  std::vector<std::thread> threads;
  threads.reserve(6);
  std::atomic<int> same = 0;
  for (int n = 0; n < 6; ++n) {
    threads.emplace_back([&] {
      const absl::StatusOr<Results> results = RunProblem();
      if (results.ok() && SameBits(*results, alone)) ++same;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(same, 6);
}

// At sizes that parity has in the night alone.
TEST_F(CudaBackendTest, HoppersKernelsMatchTheOracle) {
  Start({.wgmma = true});
  for (const auto& [type, kernel] :
       {std::pair(DataType::kFloat16, "fp16_wgmma"),
        std::pair(DataType::kBFloat16, "bf16_wgmma")}) {
    owned_ = MakeProblem({.query_heads = 4,
                          .kv_heads = 2,
                          .query_length = 150,
                          .key_length = 200,
                          .width = 64,
                          .value_width = 64,
                          .type = type,
                          .valid_lens = LengthsShape::kPerRow,
                          .causal = Causal::kBottomRight,
                          .window = {.left = 90, .right = {}},
                          .sinks = PerHeadShape::kPerHead,
                          .wanted = {.weights = false, .lse = true}},
                         TestSeed());
    ASSERT_OK_AND_ASSIGN(const Results results, RunProblem());
    EXPECT_EQ(results.kernel, kernel);
    EXPECT_TRUE(Matches(owned_.problem, results));
  }
}

}  // namespace
}  // namespace attention::test
