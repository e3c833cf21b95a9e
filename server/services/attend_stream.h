#ifndef ATTENTION_SERVER_SERVICES_ATTEND_STREAM_H_
#define ATTENTION_SERVER_SERVICES_ATTEND_STREAM_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>

#include "server/scheduling/active_calls.h"
#include "server/scheduling/attend_task.h"

namespace attention::server {

/// One AttendStream call: reads requests and writes replies independently of
/// each other, replies in the order in which they finish.
///
/// A request is in flight from when it was read until its reply was written; at
/// the bound, reading pauses. The stream ends when the client has half-closed
/// (OK), the server drains (UNAVAILABLE) or the call broke (CANCELLED), and in
/// each case once nothing is in flight any more.
///
/// Lifetime: ActiveCalls and every running task keep the stream; gRPC calls
/// OnDone after Finish() and after the last of its callbacks has returned, and
/// only then is it removed from ActiveCalls.
class AttendStream final
    : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
      public DrainableCall,
      public std::enable_shared_from_this<AttendStream> {
 public:
  using Reactor = grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;

  /// Starts reading. The result is what the service's method returns to gRPC.
  static Reactor* Begin(const AttendServices& services, ActiveCalls& calls,
                        int64_t max_in_flight,
                        grpc::CallbackServerContext& context);

  AttendStream(const AttendServices& services, ActiveCalls& calls,
               int64_t max_in_flight, grpc::CallbackServerContext& context);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  void OnDrain() override;
  void OnDrainEnd() override { StopAll(StopReason::kDraining); }

 private:
  struct Reply {
    grpc::ByteBuffer message;
    Admission::Ticket ticket;
  };

  void StartRequest(grpc::ByteBuffer& message);  // which is emptied
  void OnReply(AttendTask* task, AttendTask::Outcome outcome);
  void StopAll(StopReason reason);
  /// Begins whatever may begin now. Never called with mutex_ held.
  void Advance();
  grpc::Status EndStatus() const;  // mutex_ is held

  const AttendServices services_;
  ActiveCalls& calls_;
  const int64_t max_in_flight_;
  const std::chrono::system_clock::time_point deadline_;
  const std::string peer_;

  std::mutex mutex_;
  grpc::ByteBuffer incoming_;  // gRPC's while reading_
  bool reading_ = false;
  bool half_closed_ = false;  // nothing more comes
  std::unordered_set<std::shared_ptr<AttendTask>> running_;
  std::deque<Reply> replies_;  // the first is gRPC's while writing_
  bool writing_ = false;
  int64_t in_flight_ = 0;  // running_ and replies_
  bool draining_ = false;
  bool broken_ = false;  // cancelled, or a write failed: nothing more goes out
  StopReason stopped_ = StopReason::kNone;  // what new tasks are told at once
  bool finished_ = false;  // Finish() was called, or is about to be
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_SERVICES_ATTEND_STREAM_H_
