#ifndef ATTENTION_CORE_COST_H_
#define ATTENTION_CORE_COST_H_

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/backend.h"
#include "core/validate.h"
#include "core/worker_pool.h"

namespace attention {

/// What a problem takes, in multiply-adds; a tanh counts as several. Two
/// problems of one scoring function take about as long as their work says.
double Work(const ValidatedProblem& problem);
double Work(absl::Span<const ValidatedProblem> problems);

/// Bytes of a problem's tensors, those that are broadcast once, and of its
/// results.
double Bytes(const ValidatedProblem& problem);

/// What computing costs on a backend, as a straight line: so much for each
/// problem, and for what it has of the rest. Nanoseconds, none below 0.
struct BackendCost {
  double of_problem = 0;       // however small
  double of_multiply_add = 0;  // as Work() counts them
  double of_byte = 0;          // as Bytes() does

  /// Of the problems together. It follows from their extents and options alone,
  /// so that problems of one shape always go the same way.
  double Of(absl::Span<const ValidatedProblem* const> problems) const;
};

/// Measures it with three problems in FP32: one without work, one with little
/// to read, and one with little else. Takes some 50 ms at most with a device
/// and with kernels that are worth their name. The backend's error where it
/// does not compute them.
absl::StatusOr<BackendCost> MeasureCost(const Backend& backend,
                                        WorkerPool& workers);

}  // namespace attention

#endif  // ATTENTION_CORE_COST_H_
