#ifndef ATTENTION_SERVER_WIRE_ATTEND_WIRE_H_
#define ATTENTION_SERVER_WIRE_ATTEND_WIRE_H_

#include <string>
#include <utility>
#include <vector>

#include "attention/v1/attention.pb.h"
#include "core/pinned_reserve.h"
#include "server/models/model_repository.h"
#include "server/request/attention_operation.h"
#include "server/wire/message_splitter.h"

namespace attention::server {

/// An attention.v1.AttendRequest and its reply.
class AttendWire final : public AttentionWire {
 public:
  /// On a stream the reply is an AttendStreamResponse and the id is required:
  /// replies are told apart by it.
  /// `models` has the parameter sets that requests may name; it outlives this.
  /// Large tensors go to `pinned`.
  AttendWire(bool on_stream, const ModelRepository& models,
             PinnedReserve pinned = {})
      : on_stream_(on_stream), models_(models), pinned_(std::move(pinned)) {}

  /// Unknown fields are refused: one that is dropped could have been a mask.
  absl::StatusOr<AttentionRequest> Decode(ReceivedMessage message,
                                          HoldBytes hold) override;
  Rpc rpc() const override {
    return on_stream_ ? Rpc::kAttendStream : Rpc::kAttend;
  }
  const std::string& id() const override { return message_.id(); }
  void Gather(WorkerPool* workers) override { elements_.Gather(workers); }
  int64_t OtherBytes() const override;
  ReplyBuffer Encode(absl::Span<Result> results,
                     const RequestFacts& facts) override;

 private:
  const bool on_stream_;
  const ModelRepository& models_;
  const PinnedReserve pinned_;
  v1::AttendRequest message_;
  MessageElements elements_;
};

/// A serialized AttendStreamResponse with an error; `status` is not OK.
ReplyBuffer EncodeStreamError(const std::string& id,
                              const absl::Status& status);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_WIRE_ATTEND_WIRE_H_
