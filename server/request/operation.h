#ifndef ATTENTION_SERVER_REQUEST_OPERATION_H_
#define ATTENTION_SERVER_REQUEST_OPERATION_H_

#include <cstdint>
#include <functional>
#include <stop_token>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/worker_pool.h"
#include "server/memory/hold_bytes.h"
#include "server/memory/received_slices.h"
#include "server/memory/reply_buffer.h"
#include "server/telemetry/request_facts.h"

namespace attention::server {

/// How much there is to compute: requests of one kind take about as long as
/// their amounts say.
struct Work {
  static constexpr int kKinds = 8;
  /// Kinds that are no scoring function, whose amounts are in bytes: copying
  /// into a sequence, decoding.
  static constexpr int kCopy = 5;
  static constexpr int kDecodeMessage = 6;
  static constexpr int kDecodeJson = 7;
  int kind = 0;  // 0 to kKinds - 1
  double amount = 0;
};

/// Operation::DecodingWork() of messages whose large fields are not looked at
/// byte by byte.
inline Work WorkOfSplitting(int64_t message_bytes) {
  constexpr int64_t kMostAtOnce = 1 << 20;
  if (message_bytes <= kMostAtOnce) return {};
  return {Work::kDecodeMessage, static_cast<double>(message_bytes)};
}

/// What an operation needs, known before it runs.
struct OperationNeeds {
  /// Bytes that the reply will hold at most.
  int64_t reply_bytes = 0;
  /// Bytes that Run() takes at most, beside the request and the reply.
  int64_t working_bytes = 0;
  Work work;
  /// Running costs less than handing it to a worker.
  bool quick = false;
};

/// What Operation::Run() calls now and then, from any worker, if it takes long;
/// either may be empty.
struct Pauses {
  /// Where other requests may run within: smaller ones do.
  std::function<void()> give_way = {};
  /// Where none may, as between two launches on a device: it looks whether the
  /// request is to stop.
  std::function<void()> look = {};
};

/// What one request of an RPC does: from a message's bytes to a reply's bytes.
/// Admission, the queue, deadlines, cancellation, drain, the log and metrics
/// are the same for all of them (server/scheduling/task.h).
///
/// The members are called in their order, by one thread at a time; after a
/// failure none is. Any of them may fail with a status that the caller gets.
class Operation {
 public:
  virtual ~Operation() = default;

  /// What the log calls it, one word: "attend".
  virtual const char* name() const = 0;
  /// The RPC that metrics count it with.
  virtual Rpc rpc() const { return Rpc::kOther; }

  /// What Decode() of a message of so many bytes takes. An amount of 0 where it
  /// is so little that the thread that brings the message may do it.
  virtual Work DecodingWork(int64_t /*message_bytes*/) const { return {}; }

  /// Reads the message. Slices are released as they are read, or by Gather().
  /// What grows beyond the message's size asks `hold` first. Notes the caller's
  /// id in `facts`, also where it then fails.
  virtual absl::Status Decode(ReceivedMessage message, HoldBytes hold,
                              RequestFacts& facts) = 0;

  /// Checks what is asked; allocates nothing that grows with it.
  virtual absl::StatusOr<OperationNeeds> Plan(RequestFacts& facts) = 0;

  /// Brings what is still in the message's slices to where it is read, on all
  /// workers, or on the calling thread where `workers` is null. A second call
  /// does nothing.
  virtual void Gather(WorkerPool* workers) = 0;

  /// Does it. CANCELLED soon after a stop was asked for. Notes in `facts` what
  /// it ran on.
  virtual absl::Status Run(const std::stop_token& stop, const Pauses& pauses,
                           RequestFacts& facts) = 0;

  /// The reply, which takes the results' memory with it. Notes in `facts` what
  /// stays where it fails.
  virtual absl::StatusOr<ReplyBuffer> Encode(RequestFacts& facts) = 0;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_REQUEST_OPERATION_H_
