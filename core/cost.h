#ifndef ATTENTION_CORE_COST_H_
#define ATTENTION_CORE_COST_H_

#include <chrono>

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
/// results, for a backend: without keys and values that it keeps
/// (Backend::KeepsKeys). The first request brings them, and later ones what was
/// appended since, which is not counted either: what is there already follows
/// from what others have asked for, and an estimate must not.
double Bytes(const ValidatedProblem& problem, const Backend& backend);

/// What computing costs on a backend, as a straight line: so much for each
/// problem, or for those that share a launch, and for what it has of the rest.
/// Nanoseconds, none below 0.
struct BackendCost {
  double of_problem = 0;       // however small (Backend::CountLaunches)
  double of_multiply_add = 0;  // as Work() counts them
  double of_byte = 0;          // as Bytes() does

  /// Of the problems together, on the backend that was measured. It follows
  /// from their extents and options, and from whether their keys stay, so that
  /// problems of one shape always go the same way.
  double Of(absl::Span<const ValidatedProblem* const> problems,
            const Backend& backend) const;
};

/// Measures it with three problems in FP32: one without work, one with little
/// to read, and one with little else. Takes some 50 ms at most with a device
/// and with kernels that are worth their name. The backend's error where it
/// does not compute them; DEADLINE_EXCEEDED where a device has no answer within
/// `patience`: it hangs, and the backend has given it up.
absl::StatusOr<BackendCost> MeasureCost(const Backend& backend,
                                        WorkerPool& workers,
                                        std::chrono::milliseconds patience);

}  // namespace attention

#endif  // ATTENTION_CORE_COST_H_
