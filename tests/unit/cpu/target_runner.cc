#include "tests/unit/cpu/target_runner.h"

#include "tests/support/cpu_test_targets.h"

namespace attention::test {
TargetRunner::TargetRunner(const std::string& target, int threads)
    : backend_(MakeCpuTestBackend(target)), workers_(threads) {}

absl::StatusOr<Results> TargetRunner::Run(const AttentionProblem& problem) {
  const absl::StatusOr<ValidatedBatch> valid = ValidateBatch(problem);
  if (!valid.ok()) return valid.status();
  absl::StatusOr<Results> results = UnwrittenResults(problem.wanted, *valid);
  if (!results.ok()) return results.status();
  AttentionJob job;
  job.problem = &valid->problems.at(0);
  job.before_tile = before_tile_;
  job.outputs = OutputsOf(*results);
  backend_->Run(absl::MakeSpan(&job, 1), RunContext{workers_});
  kernel_ = static_cast<std::string>(job.kernel);
  if (!job.status.ok()) return job.status;
  return results;
}

}  // namespace attention::test
