#ifndef ATTENTION_SERVER_SHARDS_SHARD_CALL_H_
#define ATTENTION_SERVER_SHARDS_SHARD_CALL_H_

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "server/memory/hold_bytes.h"
#include "server/scheduling/call.h"
#include "server/scheduling/request_queue.h"
#include "server/services/caller_of_call.h"
#include "server/shards/part_operation.h"
#include "server/shards/peers.h"
#include "server/shards/shard_answer.h"
#include "server/shards/shard_message.h"

namespace attention::server {

/// One call of ShardService.Attend. Its parts are requests like any other; once
/// the first one is admitted, other servers are asked, too, and no thread waits
/// for them. Whoever comes last merges. It lives as a UnaryCall does.
class ShardCall final : public grpc::ServerUnaryReactor,
                        public Call,
                        public QueuedWork {
 public:
  /// What does a part, as its rules say.
  using NewPart = std::function<std::unique_ptr<Operation>(
      std::shared_ptr<AttendWire> wire, PartRules rules)>;
  /// Reads parts.
  using NewWire = std::function<std::shared_ptr<AttendWire>()>;

  /// What a call is made of.
  struct Origin {
    CallOrigin call;
    /// The caller's "authorization", which other servers are shown; empty where
    /// it has none.
    std::string authorization;
  };

  ShardCall(const TaskServices& services, ActiveCalls& calls, Origin origin,
            Peers& peers, grpc::CallbackServerContext& context,
            grpc::ByteBuffer& response);

  /// Once, after Joined(). `message` is emptied; `new_part` makes operations of
  /// the call's caller.
  void Go(grpc::ByteBuffer& message, const NewWire& new_wire,
          const NewPart& new_part);
  void Joined() { Join(); }

  // The caller went away, or its deadline passed.
  void OnCancel() override;
  void OnDrainEnd() override;
  void OnDone() override;
  // Merges what is too large to be merged where it came in.
  void RunQueued(Turn& turn) override;

 private:
  // Another server, while it is asked.
  struct Asked {
    std::shared_ptr<grpc::Channel> channel;
    grpc::ClientContext context;
    grpc::ByteBuffer request;
  };

  // Makes room for all that its parts and others tell.
  absl::Status Read(ReceivedMessage message);
  absl::Status CheckOthers() const;
  void Emit(int64_t number, Task::Outcome outcome) override;
  // From the parts' operations.
  void AskOthers();
  std::unique_ptr<Asked> Prepare(size_t other);
  void Ask(size_t other);
  void OnAnswer(size_t other, const grpc::Status& status);

  // The first failure is the call's, and ends what others do for it.
  void Fail(absl::Status status);
  absl::Status failure();
  // One of those that were waited for is there, or has failed.
  void Arrived();
  // `hold` is asked for nothing now and then, as MergeAnswers() does.
  void Conclude(HoldBytes hold);
  // Merges what all have answered, and puts it into words.
  absl::Status Reply(HoldBytes hold);
  void End(const absl::Status& status);

  const std::string authorization_;
  Peers& peers_;
  grpc::CallbackServerContext& context_;  // lives until OnDone()
  grpc::ByteBuffer& response_;
  const std::chrono::steady_clock::time_point begin_ =
      std::chrono::steady_clock::now();
  RequestFacts facts_;
  ShardRequest request_;
  std::shared_ptr<AttendWire> wire_;  // of the first part
  std::vector<ShardAnswer> answers_;  // of the parts, then of others

  std::mutex mutex_;
  size_t pending_ = 0;
  absl::Status failure_;
  std::vector<std::unique_ptr<Asked>> asked_;
  std::vector<Admission::Ticket> tickets_;  // until the reply is out
  ReplyWatch::Watch watch_;                 // likewise
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_SHARDS_SHARD_CALL_H_
