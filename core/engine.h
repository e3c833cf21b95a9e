#ifndef ATTENTION_CORE_ENGINE_H_
#define ATTENTION_CORE_ENGINE_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/backend.h"
#include "core/worker_pool.h"

namespace attention {

struct EngineOptions {
  /// Threads that compute; 0 means one per processor that the process may use.
  int threads = 0;
  /// "auto" tries every backend of this build that is not experimental, fastest
  /// first: cpu, then reference. A backend's name uses that one alone.
  std::string backend = "auto";
  /// Called after every tile, where set (see RunContext).
  std::function<void()> on_tile = {};
};

/// The names that EngineOptions::backend takes in this build: "auto", then the
/// backends, fastest first.
std::vector<std::string> BackendNames();

/// Picks a backend for a problem, runs it over the worker threads and honours
/// its stop token. May be used from several threads at once.
class Engine {
 public:
  /// INVALID_ARGUMENT for a backend name that this build does not know, a
  /// negative number of threads, or an instruction set in the environment
  /// variable ATTENTION_CPU_TARGET that is not to be had.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(EngineOptions options);

  /// Computes one job and writes its status too. UNIMPLEMENTED where no backend
  /// supports it; CANCELLED where it was stopped.
  absl::Status Run(AttentionJob& job) const;

  /// True for a problem that takes some microseconds at most, less than to hand
  /// it to a worker: Run() it where you are. Never where tiles are watched: who
  /// watches them may hold them up.
  bool IsQuick(const ValidatedProblem& problem) const;

  /// In the order in which they are tried.
  absl::Span<const std::unique_ptr<Backend>> backends() const {
    return backends_;
  }
  WorkerPool& workers() const { return *workers_; }

 private:
  Engine() = default;

  EngineOptions options_;
  std::unique_ptr<WorkerPool> workers_;
  std::vector<std::unique_ptr<Backend>> backends_;
};

}  // namespace attention

#endif  // ATTENTION_CORE_ENGINE_H_
