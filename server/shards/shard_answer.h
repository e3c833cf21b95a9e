#ifndef ATTENTION_SERVER_SHARDS_SHARD_ANSWER_H_
#define ATTENTION_SERVER_SHARDS_SHARD_ANSWER_H_

#include <chrono>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "attention/v1/attention.pb.h"
#include "server/memory/hold_bytes.h"
#include "server/request/results.h"

namespace attention::server {

/// What one shard answers: a part of this server's, or another server with all
/// that it has asked.
struct ShardAnswer {
  std::string whose;            // for messages: "parts[1]", "10.1.0.7:8001"
  std::vector<Result> results;  // of a part: output and lse
  v1::AttendResponse reply;     // of another server
  std::string backend;
  std::string kernel;
  std::chrono::nanoseconds queue_time{0};
  std::chrono::nanoseconds compute_time{0};
};

/// Merges what all have answered into the results of the first one, which is a
/// part. `hold` is asked for nothing with each MiB of answers, and where it
/// fails, the merge ends. INVALID_ARGUMENT, with whose it is, where shapes or
/// datatypes differ.
absl::Status MergeAnswers(absl::Span<ShardAnswer> answers, HoldBytes hold);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_SHARDS_SHARD_ANSWER_H_
