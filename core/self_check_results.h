#ifndef ATTENTION_CORE_SELF_CHECK_RESULTS_H_
#define ATTENTION_CORE_SELF_CHECK_RESULTS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/backend.h"
#include "core/tensor.h"
#include "core/validate.h"
#include "core/worker_pool.h"

/// What backends make of a problem of the self check, and whether they agree.
namespace attention::self_check {

/// Output, log-sum-exp, and weights where they are wanted (empty otherwise);
/// shapes as ValidatedProblem has them.
struct Results {
  Tensor output, weights, lse;
};

/// Memory for what is wanted. RESOURCE_EXHAUSTED where there is none.
absl::StatusOr<Results> MakeResults(const ValidatedProblem& problem);

/// A job that writes to `results`. Both must outlive it.
AttentionJob JobOf(const ValidatedProblem& problem, Results& results);

/// The backend's results or error; `kernel` is the one that was to answer, also
/// where that failed.
absl::StatusOr<Results> Compute(const Backend& backend,
                                const ValidatedProblem& problem,
                                WorkerPool& workers, std::string& kernel);

/// OK, or INTERNAL with the first element of `found` that is not what
/// roundings make of `expected`: "output element 17 is 0.25 (0.3125 is
/// expected)".
absl::Status Compare(const ValidatedProblem& problem, const Results& expected,
                     const Results& found);

/// INTERNAL: "BF16 causal: kernel bf16_mma: ", and what went wrong.
absl::Status Failed(absl::string_view case_name, absl::string_view kernel,
                    const absl::Status& status);

}  // namespace attention::self_check

#endif  // ATTENTION_CORE_SELF_CHECK_RESULTS_H_
