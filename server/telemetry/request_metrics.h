#ifndef ATTENTION_SERVER_TELEMETRY_REQUEST_METRICS_H_
#define ATTENTION_SERVER_TELEMETRY_REQUEST_METRICS_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/telemetry/histogram.h"
#include "server/telemetry/refusal.h"
#include "server/telemetry/request_facts.h"
#include "server/telemetry/request_series.h"
#include "server/telemetry/rpc.h"

namespace attention::server {

/// Counts the requests of one server, for metrics. A request costs some tens of
/// nanoseconds: everything has its place in an array, and one lock is taken.
/// May be used from several threads at once.
class RequestMetrics {
 public:
  struct OfRpc {
    uint64_t started = 0;
    std::array<uint64_t, kStatusCodes> by_code{};  // calls that ended
    TimeHistogram time;     // of unary calls, from arrival to the encoded reply
    uint64_t received = 0;  // requests on streams
    uint64_t sent = 0;      // replies to them, errors included
  };
  struct OfKernel {
    std::string backend;
    std::string kernel;
    uint64_t requests = 0;
  };
  struct Counts {
    std::array<OfRpc, kRpcs> rpcs;
    /// Requests of attention.v1, by their scoring function; the last: those
    /// that could not be read so far.
    std::array<RequestSeries, kMostScorings + 1> by_scoring;
    RequestSeries appends;   // to sequences
    RequestSeries no_model;  // of the Open Inference Protocol, of no model
    std::array<uint64_t, kRefusalReasons> refused{};
    std::array<uint64_t, kMostDataTypes> tensors{};
    std::vector<OfKernel> kernels;
  };

  /// A unary call, or a request of a stream, has arrived.
  void NoteArrival(Rpc rpc);
  /// The same request has ended.
  void Count(const RequestFacts& facts);

  /// A stream, from its beginning to its end.
  void NoteStream(Rpc rpc);
  void NoteStreamEnd(Rpc rpc, int grpc_code);

  /// A call or a stream that ended before it was read: who calls is not known,
  /// or has too many.
  void CountTurnedAway(Rpc rpc, const absl::Status& status);

  Counts Read() const;

 private:
  std::array<std::atomic<uint64_t>, kRpcs> arrived_{};
  mutable std::mutex mutex_;
  Counts counts_;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_TELEMETRY_REQUEST_METRICS_H_
