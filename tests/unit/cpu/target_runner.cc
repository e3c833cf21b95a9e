#include "tests/unit/cpu/target_runner.h"

#include <vector>

#include "tests/support/cpu_test_targets.h"

namespace attention::test {
TargetRunner::TargetRunner(const std::string& target, int threads)
    : backend_(MakeCpuTestBackend(target)), workers_(threads) {}

absl::StatusOr<Results> TargetRunner::Run(const AttentionProblem& problem) {
  const absl::StatusOr<ValidatedBatch> valid = ValidateBatch(problem);
  if (!valid.ok()) return valid.status();
  absl::StatusOr<Results> results = UnwrittenResults(problem.wanted, *valid);
  if (!results.ok()) return results.status();
  const AttentionOutputs outputs = OutputsOf(*results);
  std::vector<AttentionJob> jobs(valid->problems.size());
  for (size_t n = 0; n < jobs.size(); ++n) {
    jobs[n].problem = &valid->problems[n];
    jobs[n].before_tile = before_tile_;
    jobs[n].outputs = valid->OutputsOf(n, outputs);
  }
  backend_->Run(absl::MakeSpan(jobs), RunContext{workers_});
  for (const AttentionJob& job : jobs) {
    kernel_ = static_cast<std::string>(job.kernel);
    if (!job.status.ok()) return job.status;
  }
  return results;
}

}  // namespace attention::test
