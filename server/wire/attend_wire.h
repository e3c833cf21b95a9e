#ifndef ATTENTION_SERVER_WIRE_ATTEND_WIRE_H_
#define ATTENTION_SERVER_WIRE_ATTEND_WIRE_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/models/model_repository.h"
#include "server/wire/reply_encoder.h"
#include "server/wire/request_decoder.h"
#include "server/wire/wire_request.h"

namespace attention::server {

/// An attention.v1.AttendRequest and its reply.
class AttendWire final : public WireRequest {
 public:
  /// On a stream the reply is an AttendStreamResponse and the id is required:
  /// replies are told apart by it.
  /// `models` has the parameter sets that requests may name; it outlives this.
  AttendWire(bool on_stream, const ModelRepository& models)
      : on_stream_(on_stream), models_(models) {}

  absl::StatusOr<AttentionProblem> Decode(
      std::vector<grpc::Slice> message) override;
  const std::string& id() const override { return request_.message().id(); }
  void Gather(WorkerPool* workers) override { request_.Gather(workers); }
  absl::Status PlanReply(const ValidatedProblem& problem,
                         int64_t limit) override;
  int64_t ReplyBytes() const override { return reply_->Bytes(); }
  absl::Status AllocateReply() override { return reply_->Allocate(); }
  AttentionOutputs Outputs() override { return reply_->Outputs(); }
  absl::StatusOr<grpc::ByteBuffer> Encode(const RequestFacts& facts) override;

 private:
  const bool on_stream_;
  const ModelRepository& models_;
  DecodedAttendRequest request_;
  std::shared_ptr<const ParameterSet> set_;  // the one that the request names
  std::optional<ReplyBuilder> reply_;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_WIRE_ATTEND_WIRE_H_
