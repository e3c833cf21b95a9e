#ifndef ATTENTION_BENCHMARKS_STEADINESS_TURNS_H_
#define ATTENTION_BENCHMARKS_STEADINESS_TURNS_H_

#include <limits>
#include <memory>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "benchmarks/runner.h"

namespace attention::bench {

/// How long to measure: what the flags say.
struct Effort {
  int rounds = 15;
  double seconds = 0.004;  // of each turn, and one call at least
};

/// A problem and the shortest time of a call so far.
struct Timed {
  std::unique_ptr<Runner> runner;
  double seconds = std::numeric_limits<double>::infinity();
};

/// Calls all of them in turns, round after round, and keeps the shortest times:
/// what else runs on the machine only ever lengthens a call, and in turns it
/// does not meet one of them alone.
absl::Status MeasureInTurns(absl::Span<Timed> all, const Effort& effort);

}  // namespace attention::bench

#endif  // ATTENTION_BENCHMARKS_STEADINESS_TURNS_H_
