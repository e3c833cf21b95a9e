#ifndef ATTENTION_SERVER_WIRE_WIRE_REQUEST_H_
#define ATTENTION_SERVER_WIRE_WIRE_REQUEST_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/problem.h"
#include "core/validate.h"
#include "core/worker_pool.h"

namespace attention::server {

/// How a request was computed, and how long each part of its way took.
struct RequestFacts {
  std::string backend;
  std::string kernel;
  std::chrono::nanoseconds decode_time{0};  // from arrival to the queue
  std::chrono::nanoseconds queue_time{0};   // from arrival to the queue's end
  std::chrono::nanoseconds gather_time{0};  // from the queue's end to computing
  std::chrono::nanoseconds compute_time{0};  // computing alone
  std::chrono::nanoseconds encode_time{0};   // putting the reply together
};

/// One request in the form of one wire: from a message's bytes to a problem,
/// and from results to a reply's bytes. It owns what the problem views. The
/// members are called in their order, by one thread at a time; after a failure
/// only Finished() is.
class WireRequest {
 public:
  virtual ~WireRequest() = default;

  /// What is asked. Slices are released as they are read, or by Gather().
  /// INVALID_ARGUMENT or NOT_FOUND names the field that is at fault.
  virtual absl::StatusOr<AttentionProblem> Decode(
      std::vector<grpc::Slice> message) = 0;

  /// The caller's name for it; empty where it has none, or could not be read.
  virtual const std::string& id() const = 0;

  /// Brings what is still in the message's slices to where the problem views
  /// it, on all workers, or on the calling thread where `workers` is null. To
  /// be called before computing; a second call does nothing.
  virtual void Gather(WorkerPool* workers) = 0;

  /// Sizes the reply, allocates nothing. RESOURCE_EXHAUSTED, with the name of
  /// the output that is too much, where the reply exceeds `limit` bytes.
  virtual absl::Status PlanReply(const ValidatedProblem& problem,
                                 int64_t limit) = 0;
  /// Bytes that the reply will hold at most.
  virtual int64_t ReplyBytes() const = 0;
  /// Memory for the results. RESOURCE_EXHAUSTED where there is none.
  virtual absl::Status AllocateReply() = 0;
  /// Where they go.
  virtual AttentionOutputs Outputs() = 0;
  /// The message, once the results are there; it takes their memory with it.
  virtual absl::StatusOr<grpc::ByteBuffer> Encode(
      const RequestFacts& facts) = 0;

  /// Whatever became of it: the last call, for those who count.
  virtual void Finished(const RequestFacts& facts, const absl::Status& status) {
    static_cast<void>(facts);
    static_cast<void>(status);
  }
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_WIRE_WIRE_REQUEST_H_
