#ifndef ATTENTION_SERVER_SERVICES_REQUEST_STREAM_H_
#define ATTENTION_SERVER_SERVICES_REQUEST_STREAM_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "server/memory/received_slices.h"
#include "server/scheduling/call.h"
#include "server/scheduling/sequence_order.h"

namespace attention::server {

/// What tells the streams of one wire from those of another.
struct StreamRules {
  Rpc rpc = Rpc::kOther;  // that metrics count it with
  /// Requests whose reply is not written yet; beyond it the stream is not read.
  int64_t max_in_flight = 1;
  std::function<std::unique_ptr<Operation>(const Caller* caller)> new_operation;
  /// What a request does with sequences: it waits for those before it where
  /// they have to be in order (SequenceOrder). Empty: nothing.
  std::function<SequenceStep(const grpc::ByteBuffer& message)> step_of = {};
  /// The reply to a request that failed; `status` is not OK.
  std::function<ReplyBuffer(const std::string& id, const absl::Status& status)>
      encode_error;
  /// Replies in the order of the requests, else in that in which they finish.
  bool in_order = false;
  /// The first request that fails ends the stream with its status.
  bool ends_with_error = false;
};

/// A call that streams requests in and replies out, independently of each
/// other.
///
/// A request is in flight from when it was read until its reply was written; at
/// the bound, reading pauses. The stream ends when the client has half-closed
/// (OK), the server drains (UNAVAILABLE), a request failed where the rules say
/// so, its caller is not known any more (UNAUTHENTICATED), there is no memory
/// to note what came of its requests (RESOURCE_EXHAUSTED) or the call broke
/// (CANCELLED), and in each case once nothing is in flight any more; of the
/// last three nothing more is computed, and where nobody is known any more, a
/// reply that is not taken within a second breaks the call.
///
/// Lifetime: gRPC calls OnDone after Finish() and after the last of its
/// callbacks has returned, and only then does it leave ActiveCalls.
class RequestStream final
    : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
      public Call {
 public:
  using Reactor = grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;

  /// Starts reading, or refuses it where its caller is not known or its peer
  /// has too many open calls. The result is what the service's method returns
  /// to gRPC.
  static Reactor* Begin(const TaskServices& services, ActiveCalls& calls,
                        StreamRules rules,
                        grpc::CallbackServerContext& context);

  /// Ends a stream before it begins.
  static Reactor* Refuse(const absl::Status& status);

  RequestStream(const TaskServices& services, ActiveCalls& calls,
                CallOrigin origin, StreamRules rules,
                grpc::CallbackServerContext& context);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  void OnDrain() override;
  void OnCallersChanged() override;

 private:
  struct Reply {
    ReplyBuffer message;
    Admission::Ticket ticket;
    absl::Status status;
  };

  struct Arrived {
    int64_t number;
    ReceivedMessage message;
  };

  // Starts what may begin, or has it wait for requests before it.
  void Arrive(int64_t number, grpc::ByteBuffer& message);
  void StartAll();
  void StartRequest(Arrived arrived);
  void Emit(int64_t number, Task::Outcome outcome) override;

  // mutex_ is held for all of these.
  void Place(Arrived arrived, SequenceStep step);
  void NoteReply(int64_t number, Reply reply);
  void Queue(Reply reply);
  // What waited for a request that has ended.
  void LetGo(int64_t number);
  // Ends the stream where one of the three above had no memory: what has not
  // begun does not.
  void GiveUp(const absl::Status& why);
  int64_t in_flight() const;
  bool drops_replies() const { return broken_ || !caller_known_; }
  /// Begins whatever may begin now. Never called with mutex_ held.
  void Advance();
  absl::Status EndStatus() const;  // mutex_ is held

  const StreamRules rules_;
  grpc::CallbackServerContext& context_;  // valid until Finish()
  grpc_call* const call_;                 // likewise

  std::mutex mutex_;
  // With the caller's rights and limits of today.
  std::shared_ptr<const CallOrigin> today_;
  bool caller_known_ = true;   // else failure_ says that nobody is
  grpc::ByteBuffer incoming_;  // gRPC's while reading_
  bool reading_ = false;
  bool half_closed_ = false;  // nothing more comes
  int64_t next_request_ = 0;  // requests are numbered as they are read
  SequenceOrder order_;
  std::map<int64_t, ReceivedMessage> waiting_;  // for their turn in order_
  int64_t waiting_bytes_ = 0;
  std::deque<Arrived> ready_;       // to be started
  bool starting_ = false;           // some thread starts them
  int64_t next_reply_ = 0;          // in order: the request whose turn it is
  std::map<int64_t, Reply> early_;  // in order: those before whose turn it is
  std::deque<Reply> replies_;       // the first is gRPC's while writing_
  bool writing_ = false;
  ReplyWatch::Watch watch_;  // while writing_, and from Finish() to OnDone()
  int64_t under_way_ = 0;    // those that were read, and are in no list
  absl::Status failure_;     // what ends the stream, where the rules say so
  bool stops_all_ = false;   // because of it
  bool draining_ = false;
  bool broken_ = false;  // cancelled, or a write failed: nothing more goes out
  bool finished_ = false;  // Finish() was called, or is about to be
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_SERVICES_REQUEST_STREAM_H_
