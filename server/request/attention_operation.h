#ifndef ATTENTION_SERVER_REQUEST_ATTENTION_OPERATION_H_
#define ATTENTION_SERVER_REQUEST_ATTENTION_OPERATION_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/batch.h"
#include "core/engine.h"
#include "server/request/attention_request.h"
#include "server/request/operation.h"
#include "server/request/request_limits.h"
#include "server/request/results.h"
#include "server/request/sequence_keys.h"

namespace attention::server {

/// The form that attention has on one wire: its message and its reply. It keeps
/// the message's elements, which the request views.
class AttentionWire {
 public:
  virtual ~AttentionWire() = default;

  /// What is asked. INVALID_ARGUMENT or NOT_FOUND names the field that is at
  /// fault. `hold` as in Operation::Decode.
  virtual absl::StatusOr<AttentionRequest> Decode(ReceivedMessage message,
                                                  HoldBytes hold) = 0;
  virtual Rpc rpc() const { return Rpc::kOther; }
  /// As in Operation.
  virtual Work DecodingWork(int64_t message_bytes) const {
    return WorkOfSplitting(message_bytes);
  }
  /// Known also where Decode() failed, unless it failed before.
  virtual SequenceLife sequence_life() const { return {}; }
  /// The caller's name for it; empty where it has none, or could not be read.
  virtual const std::string& id() const = 0;
  /// Who counts the requests of the model that it names; null where it names
  /// none, or could not be read.
  virtual std::shared_ptr<ModelCounters> model() const { return nullptr; }
  /// As Operation::Gather.
  virtual void Gather(WorkerPool* workers) = 0;

  /// Bytes of the reply that are no elements, at most.
  virtual int64_t OtherBytes() const = 0;
  /// The same where elements of `element_bytes` are written as text besides.
  /// Saturates at 2^63 - 1.
  virtual int64_t BytesBeside(int64_t /*element_bytes*/) const {
    return OtherBytes();
  }
  /// The reply with the results, whose memory it takes.
  virtual ReplyBuffer Encode(absl::Span<Result> results,
                             const RequestFacts& facts) = 0;
};

/// Attention, over any wire.
class AttentionOperation final : public Operation {
 public:
  /// `engine` outlives it. RESOURCE_EXHAUSTED for what is beyond `limits`.
  AttentionOperation(std::unique_ptr<AttentionWire> wire, const Engine& engine,
                     const RequestLimits& limits, ResidentAccess resident)
      : wire_(std::move(wire)),
        engine_(engine),
        limits_(limits),
        resident_(std::move(resident)) {}

  const char* name() const override { return "attend"; }
  Rpc rpc() const override { return wire_->rpc(); }
  Work DecodingWork(int64_t message_bytes) const override {
    return wire_->DecodingWork(message_bytes);
  }
  absl::Status Decode(ReceivedMessage message, HoldBytes hold,
                      RequestFacts& facts) override;
  absl::StatusOr<OperationNeeds> Plan(RequestFacts& facts) override;
  void Gather(WorkerPool* workers) override { wire_->Gather(workers); }
  absl::Status Run(const std::stop_token& stop, const Pauses& pauses,
                   RequestFacts& facts) override;
  absl::StatusOr<ReplyBuffer> Encode(RequestFacts& facts) override;

 private:
  absl::Status PlanResults();
  absl::Status ReadSequences();
  absl::Status Compute(const std::stop_token& stop, const Pauses& pauses,
                       RequestFacts& facts);
  void EndSequences(const absl::Status& status, RequestFacts& facts);
  absl::StatusOr<ReplyBuffer> EncodeResults(const RequestFacts& facts);

  const std::unique_ptr<AttentionWire> wire_;
  const Engine& engine_;
  const RequestLimits limits_;
  const ResidentAccess resident_;
  std::optional<SequenceKeys> keys_;  // of sequences
  std::optional<AttentionRequest> request_;
  std::optional<ValidatedBatch> batch_;
  std::optional<Results> results_;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_REQUEST_ATTENTION_OPERATION_H_
