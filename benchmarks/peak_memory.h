#ifndef ATTENTION_BENCHMARKS_PEAK_MEMORY_H_
#define ATTENTION_BENCHMARKS_PEAK_MEMORY_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "benchmarks/runner.h"

namespace attention::bench {

/// Bytes by which the process grows, at most, during a runner's first run: its
/// inputs and result buffers are there already, so this is what the backend
/// needs beside them, the stacks of its threads included. Counts pages of
/// physical memory, from wherever they were had (the kernel's own counters,
/// Linux alone, exact to some tens of pages per processor). To be called once
/// in a process, before anything else has run, as backends keep their memory.
absl::StatusOr<int64_t> PeakMemoryOfFirstRun(Runner& runner);

}  // namespace attention::bench

#endif  // ATTENTION_BENCHMARKS_PEAK_MEMORY_H_
