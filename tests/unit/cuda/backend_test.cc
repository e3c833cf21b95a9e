// The backend as a whole, on emulated devices: what it does beside computing.
// Whether its results are right is asked by tests/parity.

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/cuda/cuda_backend.h"
#include "core/cuda/emulated_device.h"
#include "core/engine.h"
#include "core/self_check.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/random.h"
#include "tests/support/random_problem.h"
#include "tests/support/results.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tolerance.h"

namespace attention {
namespace {

using cuda::Faults;
using test::IsOk;
using test::MakeProblem;
using test::Matches;
using test::OwnedProblem;
using test::Results;
using test::RunOn;
using test::TestSeed;
using ::testing::HasSubstr;

class CudaBackendTest : public ::testing::Test {
 protected:
  struct Options {
    int devices = 1;
    std::optional<int64_t> memory_limit = {};
    bool experimental = false;
    cuda::PlanOptions plan = {};
    std::string backend = "cuda_test";
    std::function<void()> on_tile = nullptr;
    int64_t launches_of_the_last = std::numeric_limits<int64_t>::max();
  };

  void Start(const Options& options) {
    cuda::Devices devices;
    for (int n = 0; n < options.devices; ++n) {
      faults_.push_back(std::make_shared<Faults>());
      devices.push_back(
          cuda::MakeEmulatedDevice(cuda::EmulatedProperties(), faults_.back()));
    }
    faults_.back()->launches_left = options.launches_of_the_last;
    EngineOptions engine;
    engine.threads = 2;
    engine.backend = options.backend;
    engine.on_tile = options.on_tile;
    engine.on_self_check = [this](const Backend& backend) {
      checked_ = static_cast<std::string>(backend.name());
    };
    engine.on_health = [this](const Backend&, const absl::Status& health,
                              bool serving) {
      told_.push_back({health, serving});
    };
    engine.more_backends.push_back(MakeCudaBackend(
        std::move(devices), {.name = "cuda_test",
                             .memory_limit = options.memory_limit,
                             .experimental = options.experimental,
                             .plan = options.plan}));
    engine_ = Engine::Create(std::move(engine)).value();
  }

  absl::StatusOr<Results> Run() { return RunOn(*engine_, owned_.problem); }

  // Runs the problem into a job of its own.
  AttentionJob RunJob(const std::stop_token& stop = {}) {
    const ValidatedProblem valid = Validate(owned_.problem).value();
    Tensor output =
        Tensor::Create(DataType::kFloat32, valid.output_shape).value();
    Tensor weights =
        Tensor::Create(DataType::kFloat32, valid.weights_shape).value();
    Tensor lse = Tensor::Create(DataType::kFloat32, valid.lse_shape).value();
    AttentionJob job;
    job.problem = &valid;
    job.outputs = {output.mutable_view(), weights.mutable_view(),
                   lse.mutable_view()};
    job.stop = stop;
    engine_->Run(job).IgnoreError();
    job.problem = nullptr;  // gone with this call
    return job;
  }

  // What the engine has told of the backend's health.
  struct Told {
    absl::Status health;
    bool serving;
  };
  std::vector<Told> told_;
  std::string checked_;  // the last backend that was
  std::vector<std::shared_ptr<Faults>> faults_;
  std::unique_ptr<Engine> engine_;
  OwnedProblem owned_ = MakeProblem(
      {.query_heads = 2, .query_length = 130, .key_length = 70}, TestSeed());
};

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

TEST_F(CudaBackendTest, IsExperimentalUnlessToldOtherwise) {
  EXPECT_TRUE(MakeCudaBackend({})->experimental());
}

TEST_F(CudaBackendTest, AutoUsesAnExperimentalOneThatAgreesWithTheReference) {
  Start({.experimental = true, .backend = "auto"});
  EXPECT_EQ(engine_->backends()[0]->name(), "cuda_test");
  EXPECT_EQ(checked_, "cuda_test");
}

TEST_F(CudaBackendTest, WhoNamesAnExperimentalOneTakesItUnchecked) {
  Start({.experimental = true});
  EXPECT_EQ(engine_->backends()[0]->name(), "cuda_test");
  EXPECT_EQ(checked_, "");
}

TEST_F(CudaBackendTest, AutoPassesOverAnExperimentalOneWhoseDeviceFails) {
  Start({.devices = 2,
         .experimental = true,
         .backend = "auto",
         .launches_of_the_last = 5});
  EXPECT_NE(engine_->backends()[0]->name(), "cuda_test");
  const UnusedBackend& unused = engine_->unused().back();
  EXPECT_EQ(unused.name, "cuda_test");
  EXPECT_EQ(unused.reason.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(static_cast<std::string>(unused.reason.message()),
              HasSubstr("emulated failure"));
}

TEST_F(CudaBackendTest, SlicesOfTheBatchGiveTheBitsOfTheWhole) {
  test::ProblemSpec spec;
  spec.batch = 5;
  spec.query_length = 20;
  spec.key_length = 30;
  spec.valid_lens = test::LengthsShape::kPerBatch;
  spec.bias = test::MaskExtents::kAll;
  spec.wanted = {.weights = true, .lse = true};
  owned_ = MakeProblem(spec, TestSeed());
  Start({});
  ASSERT_OK_AND_ASSIGN(const Results whole, Run());
  EXPECT_EQ(faults_[0]->streams, 1);
  Start({.plan = {.slice_bytes = int64_t{2} * 20 * 30 * 4 * 3}});
  ASSERT_OK_AND_ASSIGN(const Results sliced, Run());
  EXPECT_TRUE(SameBits(sliced, whole));
  EXPECT_EQ(faults_[1]->streams, 2);
}

TEST_F(CudaBackendTest, WhatDoesNotFitInSlicesIsComputedAsAWhole) {
  test::ProblemSpec spec;
  spec.batch = 3;
  spec.wanted.weights = true;
  owned_ = MakeProblem(spec, TestSeed());
  // Two slices have a workspace each.
  const cuda::PlanOptions plan = {.least_product_elements = 1,
                                  .slice_bytes = 1};
  Start({.memory_limit = cuda::kWorkspaceBytes * 3 / 2, .plan = plan});
  ASSERT_OK_AND_ASSIGN(const Results whole, Run());
  EXPECT_EQ(faults_.back()->streams, 1);
  Start({.plan = plan});
  ASSERT_OK_AND_ASSIGN(const Results sliced, Run());
  EXPECT_EQ(faults_.back()->streams, 2);
  EXPECT_TRUE(SameBits(sliced, whole));
}

TEST_F(CudaBackendTest, AFailureInOneSliceIsTheJobs) {
  owned_ = MakeProblem({.batch = 6, .query_length = 9}, TestSeed());
  for (const int64_t launches : {0, 1, 4, 9}) {
    Start({.plan = {.slice_bytes = 1}});
    faults_.back()->launches_left = launches;
    EXPECT_EQ(Run().status().code(), absl::StatusCode::kInternal) << launches;
  }
}

TEST_F(CudaBackendTest, AStopBetweenSlicesEndsTheJob) {
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

// Notes which kernels answer.
class Recorder final : public Backend {
 public:
  explicit Recorder(std::unique_ptr<Backend> backend)
      : backend_(std::move(backend)) {}

  absl::string_view name() const override { return backend_->name(); }
  std::string instruction_set() const override { return "none"; }
  absl::Status Supports(const ValidatedProblem& problem) const override {
    return backend_->Supports(problem);
  }
  void Run(absl::Span<AttentionJob> jobs,
           const RunContext& context) const override {
    backend_->Run(jobs, context);
    for (const AttentionJob& job : jobs) kernels_.emplace(job.kernel);
  }
  const std::set<std::string>& kernels() const { return kernels_; }

 private:
  const std::unique_ptr<Backend> backend_;
  mutable std::set<std::string> kernels_;
};

TEST(CudaSelfCheck, UsesEveryKernel) {
  cuda::Devices devices;
  devices.push_back(cuda::MakeEmulatedDevice());
  const Recorder recorder(MakeCudaBackend(std::move(devices)));
  WorkerPool workers(2);
  EXPECT_THAT(SelfCheck(recorder, workers), IsOk());
  EXPECT_THAT(recorder.kernels(),
              ::testing::UnorderedElementsAre("fp32_tiles", "fp32_tiles_split",
                                              "fp16_mma", "fp16_mma_split",
                                              "bf16_mma", "bf16_mma_split",
                                              "cublas_products", "fp64_rows"));
}

TEST_F(CudaBackendTest, AutoPrefersOneThatIsNot) {
  Start({.backend = "auto"});
  EXPECT_EQ(RunJob().backend, "cuda_test");
}

TEST_F(CudaBackendTest, EvenTheSmallestProblemIsForAWorker) {
  Start({});
  const OwnedProblem small =
      MakeProblem({.query_length = 1, .key_length = 1}, TestSeed());
  EXPECT_FALSE(engine_->IsQuick(Validate(small.problem).value()));
}

TEST_F(CudaBackendTest, CountsItsLaunchesAsTiles) {
  std::atomic<int64_t> tiles = 0;
  Start({.plan = {.work_per_launch = 1}, .on_tile = [&] { ++tiles; }});
  const AttentionJob job = RunJob();
  EXPECT_GT(job.tiles_total, 5);
  EXPECT_EQ(job.tiles_computed, job.tiles_total);
  EXPECT_EQ(tiles, job.tiles_total);
}

TEST_F(CudaBackendTest, StopsBetweenLaunches) {
  std::stop_source stop;
  std::atomic<int64_t> tiles = 0;
  Start({.plan = {.work_per_launch = 1}, .on_tile = [&] {
           if (++tiles == 3) stop.request_stop();
         }});
  const AttentionJob job = RunJob(stop.get_token());
  EXPECT_EQ(job.status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(job.tiles_computed, 3);
}

TEST_F(CudaBackendTest, ComputesAfterAJobThatWasStopped) {
  std::stop_source stop;
  stop.request_stop();
  Start({});
  EXPECT_EQ(RunJob(stop.get_token()).status.code(),
            absl::StatusCode::kCancelled);
  ASSERT_OK_AND_ASSIGN(const Results results, Run());
  EXPECT_TRUE(Matches(owned_.problem, results));
}

TEST_F(CudaBackendTest, TheSecondJobTakesNoMoreMemory) {
  Start({});
  ASSERT_THAT(Run().status(), IsOk());
  const int64_t allocated = faults_[0]->allocated;
  EXPECT_GT(allocated, 0);
  ASSERT_THAT(Run().status(), IsOk());
  EXPECT_EQ(faults_[0]->allocated, allocated);
  EXPECT_EQ(faults_[0]->streams, 1);
}

TEST_F(CudaBackendTest, ASmallProblemIsOneCopyEachWay) {
  Start({});
  owned_ = MakeProblem({.valid_lens = test::LengthsShape::kPerRow,
                        .attend_mask = test::MaskExtents::kAll,
                        .bias = test::MaskExtents::kAll,
                        .wanted = {}},
                       TestSeed());
  ASSERT_THAT(Run().status(), IsOk());
  EXPECT_EQ(faults_[0]->copies, 2);
}

TEST_F(CudaBackendTest, GivesAllMemoryBackInTheEnd) {
  Start({});
  ASSERT_THAT(Run().status(), IsOk());
  engine_.reset();
  EXPECT_EQ(faults_[0]->allocated, 0);
}

TEST_F(CudaBackendTest, MoreThanTheMemoryLimitIsRefused) {
  Start({.memory_limit = 1000});
  const absl::Status status = Run().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(static_cast<std::string>(status.message()),
              HasSubstr("the limit of 1000"));
}

TEST_F(CudaBackendTest, ADeviceWithoutMemoryIsNotLost) {
  Start({.memory_limit = int64_t{1} << 30});
  faults_[0]->memory = 1000;
  EXPECT_EQ(Run().status().code(), absl::StatusCode::kResourceExhausted);
  faults_[0]->memory = int64_t{1} << 30;
  EXPECT_THAT(Run().status(), IsOk());
}

TEST_F(CudaBackendTest, DevicesTakeTurns) {
  Start({.devices = 2});
  ASSERT_THAT(Run().status(), IsOk());
  ASSERT_THAT(Run().status(), IsOk());
  EXPECT_EQ(faults_[0]->streams, 1);
  EXPECT_EQ(faults_[1]->streams, 1);
}

TEST_F(CudaBackendTest, AnErrorOfTheDeviceIsTheJobsOwn) {
  Start({});
  EXPECT_THAT(engine_->backends()[0]->health(), IsOk());
  faults_[0]->launches_left = 1;
  EXPECT_EQ(Run().status().code(), absl::StatusCode::kInternal);
}

TEST_F(CudaBackendTest, ALostDeviceIsToldWithItsReason) {
  Start({});
  faults_[0]->launches_left = 0;
  ASSERT_FALSE(Run().ok());
  const absl::Status health = engine_->backends()[0]->health();
  EXPECT_EQ(health.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(static_cast<std::string>(health.message()),
              HasSubstr("the device is lost: attend"));
  EXPECT_EQ(Run().status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(CudaBackendTest, ALostDeviceIsToldOnce) {
  Start({.devices = 2});
  faults_[1]->launches_left = 0;
  for (int n = 0; n < 4; ++n) Run().IgnoreError();
  ASSERT_EQ(told_.size(), 1U);
  EXPECT_EQ(told_[0].health.code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(told_[0].serving);
}

TEST_F(CudaBackendTest, TheLastDeviceToGoIsToldAsTheEnd) {
  Start({.devices = 2});
  faults_[0]->launches_left = 0;
  faults_[1]->launches_left = 0;
  for (int n = 0; n < 4; ++n) Run().IgnoreError();
  ASSERT_EQ(told_.size(), 2U);
  EXPECT_EQ(told_[1].health.code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(told_[1].serving);
}

TEST_F(CudaBackendTest, AJobThatIsRefusedTellsNothing) {
  Start({.memory_limit = 1000});
  EXPECT_FALSE(Run().ok());
  EXPECT_THAT(told_, ::testing::IsEmpty());
}

TEST_F(CudaBackendTest, OtherBackendsTakeOverFromALostDevice) {
  Start({.backend = "auto"});
  faults_[0]->launches_left = 0;
  EXPECT_EQ(RunJob().backend, "cuda_test");
  const AttentionJob job = RunJob();
  EXPECT_THAT(job.status, IsOk());
  EXPECT_NE(job.backend, "cuda_test");
}

TEST_F(CudaBackendTest, TheOtherDeviceTakesOverFromALostOne) {
  Start({.devices = 2});
  faults_[0]->launches_left = 0;
  int failed = 0;
  for (int n = 0; n < 6; ++n) failed += Run().ok() ? 0 : 1;
  EXPECT_EQ(failed, 1);
  EXPECT_FALSE(engine_->backends()[0]->health().ok());
}

TEST_F(CudaBackendTest, JobsAtOnceGiveWhatTheyGiveAlone) {
  Start({.devices = 2, .memory_limit = int64_t{2} << 20});
  ASSERT_OK_AND_ASSIGN(const Results alone, Run());
  std::vector<std::thread> threads;
  threads.reserve(6);
  std::atomic<int> same = 0;
  for (int n = 0; n < 6; ++n) {
    threads.emplace_back([&] {
      const absl::StatusOr<Results> results = Run();
      if (results.ok() && SameBits(*results, alone)) ++same;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(same, 6);
}

}  // namespace
}  // namespace attention
