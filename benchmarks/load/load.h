#ifndef ATTENTION_BENCHMARKS_LOAD_LOAD_H_
#define ATTENTION_BENCHMARKS_LOAD_LOAD_H_

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "attention_client/client.h"
#include "benchmarks/load/api.h"

namespace attention::bench {

/// How calls are made.
struct LoadOptions {
  client::ClientOptions server;  // where it is, and how to get there
  bool stream = false;           // one stream, or unary calls
  /// Closed loop: so many calls at a time, each followed by the next. Open
  /// loop: at most so many at a time.
  int in_flight = 1;
  /// Open loop: calls per second, begun when they are due whatever became of
  /// those before; their latency counts from when they were due. 0: closed.
  double rate = 0;
  double timeout_seconds = 0;  // of a unary call, from when it is due; 0: none
  double warm_up_seconds = 0.3;
  double seconds = 2;
};

/// Makes calls over one connection, from one thread, and says what they took
/// (Samples::ToJson). The error of the first call that fails, if all do.
absl::StatusOr<nlohmann::json> RunLoad(const LoadOptions& options,
                                       const LoadShape& shape, const Api& api);

}  // namespace attention::bench

#endif  // ATTENTION_BENCHMARKS_LOAD_LOAD_H_
