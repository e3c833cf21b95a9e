#ifndef ATTENTION_BENCHMARKS_ROUNDS_H_
#define ATTENTION_BENCHMARKS_ROUNDS_H_

#include <iosfwd>

#include "absl/status/status.h"
#include "benchmarks/runner.h"
#include "benchmarks/shape.h"

namespace attention::bench {

/// Measures when told to, so that a harness can take turns between this process
/// and others. First prints a line of JSON that describes the case; then
/// answers each line of `commands` with a line of JSON:
///   attend SECONDS   calls for about that long; the median and the shortest
///                    seconds of a call
///   limits SECONDS   the machine's peak rate of multiply-adds and of reading
///                    memory, with the case's number of threads
/// Returns at the end of `commands`.
absl::Status ServeRounds(const Case& shape, Runner& runner,
                         std::istream& commands, std::ostream& answers);

}  // namespace attention::bench

#endif  // ATTENTION_BENCHMARKS_ROUNDS_H_
