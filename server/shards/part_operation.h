#ifndef ATTENTION_SERVER_SHARDS_PART_OPERATION_H_
#define ATTENTION_SERVER_SHARDS_PART_OPERATION_H_

#include <functional>
#include <memory>

#include "server/request/attention_operation.h"
#include "server/shards/shard_answer.h"
#include "server/wire/attend_wire.h"

namespace attention::server {

/// What an operation of one part of a shard does beside attention.
struct PartRules {
  /// Where its results go. Outlives the operation.
  ShardAnswer* answer;
  /// Answers of other servers that its place among admitted requests is to
  /// cover, each as large as its own.
  int64_t other_answers = 0;
  /// Called once it is admitted, before it computes; may be empty.
  std::function<void()> on_admitted = {};
};

/// Attention to one part of a shard. Its results are kept for the merge in
/// place of a reply.
class PartOperation final : public Operation {
 public:
  /// `wire` reads the part, and puts the merged results into words later.
  /// `engine` outlives it.
  PartOperation(std::shared_ptr<AttendWire> wire, const Engine& engine,
                const RequestLimits& limits, ResidentAccess resident,
                PartRules rules);

  const char* name() const override { return "attend_part"; }
  Work DecodingWork(int64_t message_bytes) const override {
    return attention_.DecodingWork(message_bytes);
  }
  absl::Status Decode(ReceivedMessage message, HoldBytes hold,
                      RequestFacts& facts) override {
    return attention_.Decode(std::move(message), hold, facts);
  }
  absl::StatusOr<OperationNeeds> Plan(RequestFacts& facts) override;
  void Gather(WorkerPool* workers) override;
  absl::Status Run(const std::stop_token& stop, const Pauses& pauses,
                   RequestFacts& facts) override {
    return attention_.Run(stop, pauses, facts);
  }
  /// An empty message.
  absl::StatusOr<ReplyBuffer> Encode(RequestFacts& facts) override {
    return attention_.Encode(facts);
  }

 private:
  PartRules rules_;
  AttentionOperation attention_;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_SHARDS_PART_OPERATION_H_
