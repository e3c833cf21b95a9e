#ifndef ATTENTION_TESTS_FUZZ_COMPUTE_RESULTS_H_
#define ATTENTION_TESTS_FUZZ_COMPUTE_RESULTS_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "core/batch.h"
#include "core/cost.h"
#include "core/engine.h"
#include "server/options/options.h"
#include "server/request/attention_request.h"
#include "server/request/request_limits.h"
#include "server/request/results.h"
#include "tests/fuzz/expect.h"

namespace attention::server {

/// Computes what is valid and small enough, as a server does: no combination of
/// options may end it. `results` are allocated.
inline void ComputeResults(const AttentionRequest& request,
                           const ValidatedBatch& batch, Results& results) {
  constexpr double kMostWork = 50'000;
  static const auto* const engine = [] {
    EngineOptions options;
    options.threads = 1;
    options.backend = "cpu";
    return Engine::Create(std::move(options)).value().release();
  }();
  const RequestLimits limits =
      LimitsOfRequest(ServerOptions(), /*caller=*/nullptr);
  const absl::Span<const ValidatedProblem> problems = batch.problems;
  if (!CheckLimits(request.problem, batch, results, limits).ok() ||
      attention::Work(problems) > kMostWork) {
    return;
  }
  const AttentionOutputs outputs = results.Outputs();
  std::vector<AttentionJob> jobs(problems.size());
  for (size_t n = 0; n < jobs.size(); ++n) {
    jobs[n].problem = &problems[n];
    jobs[n].outputs = batch.OutputsOf(n, outputs);
  }
  Expect(engine->WorkingBytes(problems) >= 0, "its memory is known");
  Expect(engine->Run(absl::MakeSpan(jobs)).ok(), "what is valid is computed");
}

}  // namespace attention::server

#endif  // ATTENTION_TESTS_FUZZ_COMPUTE_RESULTS_H_
