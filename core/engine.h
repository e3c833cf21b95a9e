#ifndef ATTENTION_CORE_ENGINE_H_
#define ATTENTION_CORE_ENGINE_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/backend.h"
#include "core/cost.h"
#include "core/pinned_reserve.h"
#include "core/worker_pool.h"

namespace attention {

struct EngineOptions {
  /// Threads that compute; 0 means one per processor that the process may use.
  int threads = 0;
  /// For those who call Run() on threads of their own, not on the workers'
  /// (WorkerPool).
  bool for_callers = false;
  /// "auto" tries every backend of this build: cuda, where there is a device,
  /// cpu, then reference. Of those that measure_cost measured, the one takes a
  /// problem that should be done first, else the first in order. One that is
  /// experimental must have passed its self check on this machine: cuda in a
  /// process of its own (core/cuda/child_check.h). A backend's name uses that
  /// one alone, unchecked.
  std::string backend = "auto";
  /// Device memory that cuda takes of each device, in bytes, at most; nothing
  /// means most of what is free (core/cuda/cuda_backend.h).
  std::optional<int64_t> cuda_memory_limit = {};
  /// Host memory to keep pinned for tensors, in bytes, where a backend has
  /// devices that can be let reach it.
  int64_t pinned_bytes = 0;
  /// The file of the CUDA plugin; empty: where core/cuda/loader.h looks.
  std::string cuda_plugin = {};
  /// How long one case of cuda's self check may take, and all that measures a
  /// backend's costs; a device that needs more hangs.
  std::chrono::milliseconds self_check_patience = std::chrono::minutes(2);
  /// Called, where set, before a backend's self check, which takes a while
  /// where a device must compile its kernels first.
  std::function<void(absl::string_view backend)> on_self_check = {};
  /// Called, where set, after a job in which a backend's health() has become
  /// worse, from the thread that ran it. `serving` is false once no backend is
  /// left that computes.
  std::function<void(const Backend& backend, const absl::Status& health,
                     bool serving)>
      on_health = {};
  /// Where "auto" has a backend that waits for a device, it and those behind it
  /// are measured when the engine is made; empty: none is. One that waits and
  /// fails at that is not used: without its costs every problem would go to it.
  /// Tests put figures of their own in its place.
  std::function<absl::StatusOr<BackendCost>(const Backend&, WorkerPool&,
                                            std::chrono::milliseconds patience)>
      measure_cost = MeasureCost;
  /// Backends beside those of the build, and in front of them: those of tests.
  std::vector<std::unique_ptr<Backend>> more_backends = {};
  /// Called after every tile, where set (see RunContext).
  std::function<void()> on_tile = {};
};

/// The names that EngineOptions::backend takes: "auto", then the backends,
/// fastest first. "cuda" is always among them; whether it is to be had is known
/// when an engine is made.
std::vector<std::string> BackendNames();
/// INVALID_ARGUMENT, which lists them, for a name that is none of these.
absl::Status CheckBackendName(absl::string_view name);

/// A backend that "auto" does not use, and why.
struct UnusedBackend {
  /// "cuda"; or, of a backend that goes on without them, kernels: "cuda's
  /// fp16_wgmma and bf16_wgmma", "cuda's cublas_gemm".
  std::string name;
  /// In words, with the code of core/cuda/loader.h: NOT_FOUND where the build
  /// has none, UNAVAILABLE where there is no device, FAILED_PRECONDITION where
  /// its files are there and broken; INTERNAL where it failed its self check;
  /// the backend's own code where it failed as its costs were measured.
  absl::Status reason;
};

/// Picks a backend for a problem, runs it over the worker threads and honours
/// its stop token. May be used from several threads at once.
class Engine {
 public:
  /// INVALID_ARGUMENT for a backend name that this build does not know, a
  /// negative number of threads, or an instruction set in the environment
  /// variable ATTENTION_CPU_TARGET that is not to be had. Where the backend is
  /// "cuda", the statuses of core/cuda/loader.h, if there is no device.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(EngineOptions options);

  /// Computes one job and writes its status too. Where no backend supports it,
  /// what the first one says of it; INVALID_ARGUMENT where its tensors lie on
  /// several devices; CANCELLED where it was stopped.
  absl::Status Run(AttentionJob& job) const {
    return Run(absl::MakeSpan(&job, 1));
  }
  /// The same of jobs that are computed together, all by one backend. The first
  /// failure is the result.
  absl::Status Run(absl::Span<AttentionJob> jobs) const;

  /// Host memory that Run() takes for the problems together, at most, beside
  /// their tensors and results (Backend::WorkingBytes).
  int64_t WorkingBytes(absl::Span<const ValidatedProblem> problems) const;
  int64_t WorkingBytes(const ValidatedProblem& problem) const {
    return WorkingBytes(absl::MakeConstSpan(&problem, 1));
  }

  /// True for problems that take some microseconds at most, less than to hand
  /// it to a worker: Run() it where you are. Never where tiles are watched: who
  /// watches them may hold them up. Never on a backend that waits for a device.
  bool IsQuick(absl::Span<const ValidatedProblem> problems) const;
  bool IsQuick(const ValidatedProblem& problem) const {
    return IsQuick(absl::MakeConstSpan(&problem, 1));
  }

  /// OK where a backend of this engine computes on CUDA devices; UNIMPLEMENTED,
  /// with the reason where there is one, otherwise.
  absl::Status CheckReachesDevices() const;
  /// As Backend::MapDeviceMemory, of the backend that jobs with such memory run
  /// on. UNIMPLEMENTED where this engine computes on no CUDA device.
  absl::StatusOr<std::unique_ptr<DeviceMemory>> MapDeviceMemory(
      absl::string_view handle, int64_t device, int64_t bytes) const;
  /// As Backend::PinHostMemory, of that backend.
  std::unique_ptr<PinnedMemory> PinHostMemory(
      absl::Span<std::byte> memory) const;
  /// What is kept pinned for that backend (EngineOptions::pinned_bytes).
  const PinnedReserve& pinned() const { return pinned_; }

  /// In the order in which they are tried.
  absl::Span<const std::unique_ptr<Backend>> backends() const {
    return backends_;
  }
  /// What "auto" reckons with for a backend; nothing where it was not measured.
  std::optional<BackendCost> CostOf(const Backend& backend) const;
  /// Whether the caller named the backend, rather than asking for "auto".
  bool chosen_by_name() const;
  WorkerPool& workers() const { return *workers_; }
  /// Of "auto": what could be expected and is not used.
  const std::vector<UnusedBackend>& unused() const { return unused_; }

 private:
  Engine() = default;

  // The backend for problems whose tensors lie on `device`, if any; or what the
  // first one says of them.
  absl::StatusOr<const Backend*> BackendFor(
      absl::Span<const ValidatedProblem* const> problems,
      std::optional<int> device) const;
  // The same before results have a place; null where there is none.
  const Backend* BackendFor(absl::Span<const ValidatedProblem> problems) const;
  void MeasureCosts();
  // The first that computes on CUDA devices; null where none does.
  const Backend* BackendOfDevices() const;
  // After a job that failed: tells what has become of the backend's health.
  void TellHealth(const Backend& backend) const;

  EngineOptions options_;
  std::unique_ptr<WorkerPool> workers_;
  std::vector<std::unique_ptr<Backend>> backends_;
  std::vector<UnusedBackend> unused_;
  std::map<const Backend*, BackendCost> costs_;
  PinnedReserve pinned_;
  mutable std::mutex told_mutex_;
  mutable std::map<const Backend*, absl::Status> told_;
};

}  // namespace attention

#endif  // ATTENTION_CORE_ENGINE_H_
