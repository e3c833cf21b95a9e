#ifndef ATTENTION_SERVER_TELEMETRY_REQUEST_FACTS_H_
#define ATTENTION_SERVER_TELEMETRY_REQUEST_FACTS_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/telemetry/refusal.h"
#include "server/telemetry/rpc.h"

namespace attention::server {

class ModelCounters;
class RequestMetrics;

/// Of core's enum and variant; what uses them asserts it.
inline constexpr size_t kMostDataTypes = 14;
inline constexpr size_t kMostScorings = 4;

/// What there is to say of one request of an RPC that costs something. Put
/// together on the request's way, observed once at its end.
struct RequestFacts {
  const char* operation = "";  // one word: "attend"
  Rpc rpc = Rpc::kOther;
  /// As the caller sent it; empty where it has none, or could not be read.
  std::string id;
  std::string peer;
  std::string trace_parent;  // W3C's; empty where the caller has none
  std::string caller;        // its name; empty where there is no callers file
  /// What was asked, for the log: shapes of query, key and value. Only where
  /// WantsDetails().
  std::string details;
  std::string backend;
  std::string kernel;

  int64_t request_bytes = 0;
  int64_t reply_bytes = 0;  // of the message; 0 where there is none
  int64_t batch_entries = 0;
  int64_t parts = 1;  // that could run at once
  /// Where it stands in core's variant; kMostScorings where it is not known.
  size_t scoring = kMostScorings;
  /// Tensors that were read, by DataType.
  std::array<uint8_t, kMostDataTypes> tensors{};

  std::chrono::nanoseconds decode_time{0};  // from arrival to the queue
  std::chrono::nanoseconds queue_time{0};   // from arrival to the queue's end
  std::chrono::nanoseconds gather_time{0};  // from the queue's end to computing
  std::chrono::nanoseconds compute_time{0};  // computing alone
  std::chrono::nanoseconds encode_time{0};   // putting the reply together

  absl::Status status;
  bool refused = false;  // before it was computed
  /// Why, where the status alone does not say it.
  Refusal refusal = Refusal::kNone;
  /// Whether the same request, sent again, does what it was to do, and no part
  /// of that twice.
  bool repeatable = true;
  /// What stays of a request that fails, to follow its error: static text.
  absl::string_view kept;

  /// Who counts the requests of a model; null where there is none.
  std::shared_ptr<ModelCounters> model;
  /// What is called where there is none: static text.
  absl::string_view scoring_name;
};

/// True where the log shows more than refusals: RequestFacts::details is then
/// worth putting together.
bool WantsDetails();

/// The one place where every request ends: logs it, has its model count it,
/// and the server's metrics unless they are null. For want of memory either is
/// left out.
/// A request that was refused or failed is a warning, unless its caller
/// cancelled it, or there are more than 10 a second after a burst of 50: those
/// are debug lines, and a warning says how many there were.
void Observe(const RequestFacts& facts, RequestMetrics* metrics = nullptr);

/// Says so for those of which no warning has spoken yet; before the end.
void TellOfRefusalsLeftOut();

}  // namespace attention::server

#endif  // ATTENTION_SERVER_TELEMETRY_REQUEST_FACTS_H_
