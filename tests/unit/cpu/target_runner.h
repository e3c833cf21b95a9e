#ifndef ATTENTION_TESTS_UNIT_CPU_TARGET_RUNNER_H_
#define ATTENTION_TESTS_UNIT_CPU_TARGET_RUNNER_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "core/backend.h"
#include "core/worker_pool.h"
#include "tests/support/results.h"

namespace attention::test {

/// The cpu backend for one of CpuTestTargets() or Bf16TestTargets(), with
/// threads of its own.
class TargetRunner {
 public:
  explicit TargetRunner(const std::string& target, int threads = 2);

  /// Validates a problem and computes it. Result memory is filled with a
  /// pattern beforehand.
  absl::StatusOr<Results> Run(const AttentionProblem& problem);

  /// Called before each tile of what is run from now on, from any worker.
  void BeforeTile(std::function<void()> call) {
    before_tile_ = std::move(call);
  }

  /// Of the problem that was run last.
  const std::string& kernel() const { return kernel_; }

 private:
  std::string kernel_;
  std::function<void()> before_tile_;
  std::unique_ptr<Backend> backend_;
  WorkerPool workers_;
};

}  // namespace attention::test

#endif  // ATTENTION_TESTS_UNIT_CPU_TARGET_RUNNER_H_
