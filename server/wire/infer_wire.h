#ifndef ATTENTION_SERVER_WIRE_INFER_WIRE_H_
#define ATTENTION_SERVER_WIRE_INFER_WIRE_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/memory/shared_memory_registry.h"
#include "server/models/model_table.h"
#include "server/wire/infer_decoder.h"
#include "server/wire/infer_inputs.h"
#include "server/wire/infer_reply.h"
#include "server/wire/wire_request.h"

namespace attention::server {

/// An inference.ModelInferRequest and its reply.
class InferWire final : public WireRequest {
 public:
  /// `models` outlives it, and `regions`, which is null where shared memory is
  /// switched off. On a stream the reply is a ModelStreamInferResponse.
  InferWire(const ModelTable& models, const SharedMemoryRegistry* regions,
            bool on_stream)
      : models_(models), regions_(regions), on_stream_(on_stream) {}

  absl::StatusOr<AttentionProblem> Decode(
      std::vector<grpc::Slice> message) override;
  const std::string& id() const override { return request_.message.id(); }
  void Gather(WorkerPool* workers) override;
  absl::Status PlanReply(const ValidatedProblem& problem,
                         int64_t limit) override;
  int64_t ReplyBytes() const override { return reply_->Bytes(); }
  absl::Status AllocateReply() override { return reply_->Allocate(); }
  AttentionOutputs Outputs() override { return reply_->Outputs(); }
  absl::StatusOr<grpc::ByteBuffer> Encode(const RequestFacts& facts) override;
  void Finished(const RequestFacts& facts, const absl::Status& status) override;

 private:
  const ModelTable& models_;
  const SharedMemoryRegistry* const regions_;
  const bool on_stream_;
  DecodedInferRequest request_;
  std::shared_ptr<const Model> model_;
  InferMemory memory_;
  std::vector<InferOutput> outputs_;
  std::optional<InferReplyBuilder> reply_;
  int64_t batch_ = 1;  // entries
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_WIRE_INFER_WIRE_H_
