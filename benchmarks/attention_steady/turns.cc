#include "benchmarks/attention_steady/turns.h"

#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace attention::bench {
namespace {

// Of the process's processor time: other programs take turns on a machine that
// is not alone, and calls of some milliseconds would be lengthened by theirs.
double ProcessorSeconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) +
         1e-9 * static_cast<double>(time.tv_nsec);
}

// Short calls are timed in batches, which the clock itself does not lengthen.
constexpr double kShortestBatch = 100e-6;  // seconds

absl::StatusOr<double> SecondsPerCall(Runner& runner, int64_t calls) {
  const double start = ProcessorSeconds();
  for (int64_t n = 0; n < calls; ++n) {
    if (absl::Status status = runner.Run(); !status.ok()) return status;
  }
  return (ProcessorSeconds() - start) / static_cast<double>(calls);
}

absl::Status TakeTurn(Timed& timed, double seconds) {
  const double start = ProcessorSeconds();
  // Brings code and data back into the caches, and says how long a call is.
  const absl::StatusOr<double> first = SecondsPerCall(*timed.runner, 1);
  if (!first.ok()) return first.status();
  timed.seconds = std::min(timed.seconds, *first);
  const auto calls = static_cast<int64_t>(
      std::max(1.0, std::ceil(kShortestBatch / std::max(*first, 1e-9))));
  while (ProcessorSeconds() - start < seconds) {
    const auto each = SecondsPerCall(*timed.runner, calls);
    if (!each.ok()) return each.status();
    timed.seconds = std::min(timed.seconds, *each);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status MeasureInTurns(absl::Span<Timed> all, const Effort& effort) {
  for (int round = 0; round < effort.rounds; ++round) {
    for (Timed& timed : all) {
      absl::Status status = TakeTurn(timed, effort.seconds);
      if (!status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

}  // namespace attention::bench
