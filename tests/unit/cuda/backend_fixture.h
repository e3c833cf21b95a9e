#ifndef ATTENTION_TESTS_UNIT_CUDA_BACKEND_FIXTURE_H_
#define ATTENTION_TESTS_UNIT_CUDA_BACKEND_FIXTURE_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "core/cuda/cuda_backend.h"
#include "core/cuda/emulation/emulated_device.h"
#include "core/engine.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/random.h"
#include "tests/support/random_problem.h"
#include "tests/support/results.h"
#include "tests/support/status_matchers.h"

namespace attention::test {

inline constexpr int64_t kMiB = int64_t{1} << 20;

/// An engine whose cuda backend has emulated devices, and a problem for it.
class CudaBackendTest : public ::testing::Test {
 protected:
  struct Options {
    int devices = 1;
    std::optional<int64_t> memory_limit = {};
    int64_t pinned_bytes = 0;
    bool experimental = false;
    bool wgmma = false;
    cuda::PlanOptions plan = {};
    std::chrono::nanoseconds stop_grace = std::chrono::hours(1);
    std::string backend = "cuda_test";
    std::function<void()> on_tile = nullptr;
    // Without costs, it comes first.
    std::function<absl::StatusOr<BackendCost>(const Backend&, WorkerPool&,
                                              std::chrono::milliseconds)>
        measure_cost = nullptr;
    std::chrono::milliseconds patience = std::chrono::hours(1);
    int64_t launches_of_the_last = std::numeric_limits<int64_t>::max();
    const char* hangs_in = nullptr;  // of the last one too
  };

  void Start(const Options& options) {
    cuda::Devices devices;
    for (int n = 0; n < options.devices; ++n) {
      faults_.push_back(std::make_shared<cuda::Faults>());
      cuda::DeviceProperties properties = cuda::EmulatedProperties();
      properties.ordinal = n;
      properties.wgmma = options.wgmma;
      devices.push_back(cuda::MakeEmulatedDevice(properties, faults_.back()));
    }
    faults_.back()->launches_left = options.launches_of_the_last;
    faults_.back()->hangs_in = options.hangs_in;
    EngineOptions engine;
    engine.threads = 2;
    engine.backend = options.backend;
    engine.on_tile = options.on_tile;
    engine.pinned_bytes = options.pinned_bytes;
    engine.measure_cost = options.measure_cost;
    engine.self_check_patience = options.patience;
    engine.on_self_check = [this](absl::string_view backend) {
      checked_ = static_cast<std::string>(backend);
    };
    engine.on_health = [this](const Backend&, const absl::Status& health,
                              bool serving) {
      told_.push_back({health, serving});
    };
    engine.more_backends.push_back(MakeCudaBackend(
        std::move(devices), {.name = "cuda_test",
                             .memory_limit = options.memory_limit,
                             .experimental = options.experimental,
                             .stop_grace = options.stop_grace,
                             .plan = options.plan}));
    engine_ = Engine::Create(std::move(engine)).value();
  }

  absl::StatusOr<Results> RunProblem() {
    return RunOn(*engine_, owned_.problem);
  }

  // Before looks are counted: while the device is asked for memory, a job is
  // looked at as often as that takes.
  void HaveMemory() { ASSERT_THAT(RunProblem().status(), IsOk()); }

  // Runs the problem into a job of its own.
  AttentionJob RunJob(const std::stop_token& stop = {},
                      const std::function<void()>& look = {}) {
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
    job.look = look;
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
  std::vector<std::shared_ptr<cuda::Faults>> faults_;
  std::unique_ptr<Engine> engine_;
  OwnedProblem owned_ = MakeProblem(
      {.query_heads = 2, .query_length = 130, .key_length = 70}, TestSeed());
};

}  // namespace attention::test

#endif  // ATTENTION_TESTS_UNIT_CUDA_BACKEND_FIXTURE_H_
