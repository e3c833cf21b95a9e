#ifndef ATTENTION_SERVER_REQUEST_OPERATION_H_
#define ATTENTION_SERVER_REQUEST_OPERATION_H_

#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <stop_token>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/worker_pool.h"
#include "server/memory/received_slices.h"
#include "server/telemetry/request_facts.h"

namespace attention::server {

/// What an operation needs, known before it runs.
struct OperationNeeds {
  /// Bytes that the reply will hold at most.
  int64_t reply_bytes = 0;
  /// Running costs less than handing it to a worker.
  bool quick = false;
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

  /// Reads the message. Slices are released as they are read, or by Gather().
  /// Notes the caller's id in `facts`, also where it then fails.
  virtual absl::Status Decode(ReceivedMessage message, RequestFacts& facts) = 0;

  /// Checks what is asked; allocates nothing that grows with it.
  virtual absl::StatusOr<OperationNeeds> Plan(RequestFacts& facts) = 0;

  /// Brings what is still in the message's slices to where it is read, on all
  /// workers, or on the calling thread where `workers` is null. A second call
  /// does nothing.
  virtual void Gather(WorkerPool* workers) = 0;

  /// Does it. CANCELLED soon after a stop was asked for. Notes in `facts` what
  /// it ran on.
  virtual absl::Status Run(const std::stop_token& stop,
                           RequestFacts& facts) = 0;

  /// The reply, which takes the results' memory with it.
  virtual absl::StatusOr<grpc::ByteBuffer> Encode(
      const RequestFacts& facts) = 0;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_REQUEST_OPERATION_H_
