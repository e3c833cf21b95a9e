#ifndef ATTENTION_SERVER_WIRE_INFER_WIRE_H_
#define ATTENTION_SERVER_WIRE_INFER_WIRE_H_

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/pinned_reserve.h"
#include "inference/grpc_service.pb.h"
#include "server/memory/shared_memory_registry.h"
#include "server/models/model_table.h"
#include "server/request/attention_operation.h"
#include "server/wire/infer_inputs.h"
#include "server/wire/infer_values.h"
#include "server/wire/message_splitter.h"

namespace attention::server {

/// An inference.ModelInferRequest and its reply, which has another form over
/// HTTP (server/http/protocol/json_infer_wire.h).
class InferWire : public AttentionWire {
 public:
  /// `models` and `regions` outlive it. Large tensors go to `pinned`. On a
  /// stream the reply is a ModelStreamInferResponse.
  InferWire(const ModelTable& models, SharedMemoryAccess regions,
            bool on_stream, PinnedReserve pinned = {})
      : models_(models),
        regions_(regions),
        on_stream_(on_stream),
        pinned_(std::move(pinned)) {}

  /// Unknown fields are refused, which the protocol's other servers skip: one
  /// that is dropped could have been a mask. So are unknown parameters and
  /// inputs, by name.
  absl::StatusOr<AttentionRequest> Decode(ReceivedMessage message,
                                          HoldBytes hold) override;
  Rpc rpc() const override {
    return on_stream_ ? Rpc::kModelStreamInfer : Rpc::kModelInfer;
  }
  const std::string& id() const override { return message_.id(); }
  std::shared_ptr<ModelCounters> model() const override {
    return model_ == nullptr ? nullptr : model_->counters;
  }
  SequenceLife sequence_life() const override {
    return sequence_ ? sequence_->life : SequenceLife();
  }
  void Gather(WorkerPool* workers) override { elements_.Gather(workers); }
  int64_t OtherBytes() const override;
  ReplyBuffer Encode(absl::Span<Result> results,
                     const RequestFacts& facts) final;

 protected:
  /// What is asked for, without elements.
  inference::ModelInferRequest& message() { return message_; }
  const inference::ModelInferRequest& message() const { return message_; }
  /// The request that message() and the inputs' elements are. `read` is what is
  /// wrong with message() as far as is known, and returned once the sequence
  /// has been looked for.
  absl::StatusOr<AttentionRequest> ToRequest(const absl::Status& read,
                                             InputElements& inputs,
                                             HoldBytes hold);

  /// The reply, of its fields but raw_output_contents and of those entries:
  /// elements of each output, none of those in regions.
  virtual ReplyBuffer Assemble(const inference::ModelInferResponse& fields,
                               std::vector<grpc::Slice> elements);

 private:
  // The model and the sequence of message_.
  absl::Status FindSequence();

  const ModelTable& models_;
  const SharedMemoryAccess regions_;
  const bool on_stream_;
  const PinnedReserve pinned_;
  inference::ModelInferRequest message_;
  MessageElements elements_;
  std::shared_ptr<const Model> model_;
  std::optional<InferSequence> sequence_;
};

/// A serialized ModelStreamInferResponse with an error, which carries the id in
/// the way that Triton's clients expect; `status` is not OK.
ReplyBuffer EncodeInferStreamError(const std::string& id,
                                   const absl::Status& status);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_WIRE_INFER_WIRE_H_
