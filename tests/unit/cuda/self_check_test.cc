// When `auto` takes a backend whose kernels no device has run yet.

#include "core/self_check.h"

#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "core/self_check_cases.h"
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

// What a device launches.
struct Launched {
  std::set<std::string> kernels;
  std::set<std::string> instances;

  void Add(const cuda::Plan& plan) {
    kernels.emplace(plan.kernel);
    const auto of_plan = InstancesOf(plan);
    instances.insert(of_plan.begin(), of_plan.end());
  }
};

// An experimental backend on the emulated device, which notes what it launches,
// and what a device with Hopper's own kernels would launch for the same.
class Recorder final : public Backend {
 public:
  Recorder() {
    cuda::Devices devices;
    devices.push_back(cuda::MakeEmulatedDevice(device_));
    backend_ = MakeCudaBackend(std::move(devices), {.name = "cuda_test"});
    hopper_.wgmma = true;
  }

  absl::string_view name() const override { return backend_->name(); }
  std::string instruction_set() const override { return "none"; }
  bool experimental() const override { return true; }
  absl::Status Supports(const ValidatedProblem& problem) const override {
    return backend_->Supports(problem);
  }
  void Run(absl::Span<AttentionJob> jobs,
           const RunContext& context) const override {
    backend_->Run(jobs, context);
    const std::lock_guard lock(mutex_);
    for (const AttentionJob& job : jobs) {
      answered_.emplace(job.kernel);
      by_device_.Add(cuda::MakePlan(*job.problem, device_));
      by_hopper_.Add(cuda::MakePlan(*job.problem, hopper_));
    }
  }
  // The kernels that jobs say they were answered by.
  const std::set<std::string>& answered() const { return answered_; }
  const Launched& by_device() const { return by_device_; }
  const Launched& by_hopper() const { return by_hopper_; }

 private:
  const cuda::DeviceProperties device_ = cuda::EmulatedProperties();
  cuda::DeviceProperties hopper_ = device_;
  std::unique_ptr<Backend> backend_;
  mutable std::mutex mutex_;
  mutable std::set<std::string> answered_;
  mutable Launched by_device_, by_hopper_;
};

// Every instance of these kernels is launched.
void ExpectInstances(const Launched& launched, const char* kernel) {
  for (const InstanceCase& made : InstanceCases()) {
    if (!made.instance.starts_with(kernel)) continue;
    EXPECT_THAT(launched.instances, ::testing::Contains(made.instance));
  }
}

// In one test: what the check computes takes seconds, with sanitizers a minute.
TEST_F(CudaSelfCheckTest, AutoUsesAnExperimentalOneThatAgreesInEveryInstance) {
  auto made = std::make_unique<Recorder>();
  const Recorder& recorder = *made;
  EngineOptions options;
  options.threads = 2;
  options.backend = "auto";
  options.on_self_check = [this](absl::string_view backend) {
    checked_ = static_cast<std::string>(backend);
  };
  options.more_backends.push_back(std::move(made));
  engine_ = Engine::Create(std::move(options)).value();
  EXPECT_EQ(engine_->backends()[0]->name(), "cuda_test");
  EXPECT_EQ(checked_, "cuda_test");
  EXPECT_THAT(recorder.answered(), ::testing::UnorderedElementsAre(
                                       "fp32_tiles", "fp32_tiles_split",
                                       "fp16_mma", "fp16_mma_split", "bf16_mma",
                                       "bf16_mma_split", "cublas_gemm"));
  ExpectInstances(recorder.by_device(), "attend_dot");
  ExpectInstances(recorder.by_device(), "attend_mma");
  // On Hopper its own kernels, and those in their place where they do not
  // serve.
  EXPECT_THAT(recorder.by_hopper().kernels,
              ::testing::IsSupersetOf({"fp16_wgmma", "bf16_wgmma"}));
  ExpectInstances(recorder.by_hopper(), "attend_wgmma");
  ExpectInstances(recorder.by_hopper(), "attend_mma");
}

// What only several calls at once may spoil is another for each of them.
TEST(SelfCheckCasesTest, EveryKindOfKernelIsComputedAtOnceWithOthers) {
  cuda::DeviceProperties hopper = cuda::EmulatedProperties();
  hopper.wgmma = true;
  std::set<std::string> kernels;
  for (const SelfCheckCase& made : SelfCheckCases()) {
    if (!made.at_once()) continue;
    const ValidatedProblem valid = Validate(made.problem()).value();
    kernels.emplace(cuda::MakePlan(valid, hopper).kernel);
  }
  EXPECT_THAT(kernels, ::testing::IsSupersetOf({"fp32_tiles", "cublas_gemm",
                                                "fp16_mma", "bf16_mma",
                                                "fp16_wgmma", "bf16_wgmma"}));
}

TEST_F(CudaSelfCheckTest, AutoPrefersOneThatIsNot) {
  Start({.backend = "auto"});
  EXPECT_EQ(RunJob().backend, "cuda_test");
}

}  // namespace
}  // namespace attention::test
