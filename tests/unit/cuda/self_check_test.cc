// When `auto` takes a backend whose kernels no device has run yet.

#include "core/self_check.h"

#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "core/worker_pool.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/gpu/instance_cases.h"
#include "tests/unit/cuda/backend_fixture.h"

namespace attention::test {
namespace {

using ::testing::HasSubstr;

using CudaSelfCheckTest = CudaBackendTest;

TEST_F(CudaSelfCheckTest, IsExperimentalUnlessToldOtherwise) {
  EXPECT_TRUE(MakeCudaBackend({})->experimental());
}

TEST_F(CudaSelfCheckTest, AutoUsesAnExperimentalOneThatAgreesWithTheReference) {
  Start({.experimental = true, .backend = "auto"});
  EXPECT_EQ(engine_->backends()[0]->name(), "cuda_test");
  EXPECT_EQ(checked_, "cuda_test");
}

TEST_F(CudaSelfCheckTest, WhoNamesAnExperimentalOneTakesItUnchecked) {
  Start({.experimental = true});
  EXPECT_EQ(engine_->backends()[0]->name(), "cuda_test");
  EXPECT_EQ(checked_, "");
}

TEST_F(CudaSelfCheckTest, AutoPassesOverAnExperimentalOneWhoseDeviceFails) {
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

// Notes which kernels answer.

class Recorder final : public Backend {
 public:
  explicit Recorder(const cuda::DeviceProperties& device) : device_(device) {
    cuda::Devices devices;
    devices.push_back(cuda::MakeEmulatedDevice(device));
    backend_ = MakeCudaBackend(std::move(devices));
  }

  absl::string_view name() const override { return backend_->name(); }
  std::string instruction_set() const override { return "none"; }
  absl::Status Supports(const ValidatedProblem& problem) const override {
    return backend_->Supports(problem);
  }
  void Run(absl::Span<AttentionJob> jobs,
           const RunContext& context) const override {
    backend_->Run(jobs, context);
    const std::lock_guard lock(mutex_);
    for (const AttentionJob& job : jobs) {
      kernels_.emplace(job.kernel);
      const auto instances = InstancesOf(cuda::MakePlan(*job.problem, device_));
      instances_.insert(instances.begin(), instances.end());
    }
  }
  const std::set<std::string>& kernels() const { return kernels_; }
  const std::set<std::string>& instances() const { return instances_; }

 private:
  std::unique_ptr<Backend> backend_;
  const cuda::DeviceProperties device_;
  mutable std::mutex mutex_;
  mutable std::set<std::string> kernels_;
  mutable std::set<std::string> instances_;
};

cuda::DeviceProperties WithWgmma() {
  cuda::DeviceProperties device = cuda::EmulatedProperties();
  device.wgmma = true;
  return device;
}

void Check(Recorder& recorder) {
  WorkerPool workers(2);
  EXPECT_THAT(SelfCheck(recorder, workers), IsOk());
}

// In one test: what the check computes takes seconds, with sanitizers a minute.
TEST_F(CudaSelfCheckTest, UsesEveryKernelInEveryInstance) {
  Recorder recorder(cuda::EmulatedProperties());
  Check(recorder);
  EXPECT_THAT(recorder.kernels(), ::testing::UnorderedElementsAre(
                                      "fp32_tiles", "fp32_tiles_split",
                                      "fp16_mma", "fp16_mma_split", "bf16_mma",
                                      "bf16_mma_split", "cublas_gemm"));
  for (const InstanceCase& made : InstanceCases()) {
    if (!made.instance.starts_with("attend_mma")) continue;
    EXPECT_THAT(recorder.instances(), ::testing::Contains(made.instance));
  }
}

TEST_F(CudaSelfCheckTest, UsesHoppersKernelsAndThoseInTheirPlace) {
  Recorder recorder(WithWgmma());
  Check(recorder);
  for (const std::string kernel : {"fp16_wgmma", "bf16_wgmma"}) {
    EXPECT_THAT(recorder.kernels(), ::testing::Contains(kernel));
  }
  for (const InstanceCase& made : InstanceCases()) {
    if (!made.instance.starts_with("attend_wgmma") &&
        !made.instance.starts_with("attend_mma")) {
      continue;
    }
    EXPECT_THAT(recorder.instances(), ::testing::Contains(made.instance));
  }
}

TEST_F(CudaSelfCheckTest, AutoPrefersOneThatIsNot) {
  Start({.backend = "auto"});
  EXPECT_EQ(RunJob().backend, "cuda_test");
}

}  // namespace
}  // namespace attention::test
