#ifndef ATTENTION_SERVER_WIRE_APPEND_OPERATION_H_
#define ATTENTION_SERVER_WIRE_APPEND_OPERATION_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "attention/v1/attention.pb.h"
#include "core/store/page_list.h"
#include "core/store/sequence.h"
#include "server/request/operation.h"
#include "server/request/resident_access.h"
#include "server/wire/message_splitter.h"

namespace attention::server {

/// attention.v1.KeyValueService.Append: keys and values into a sequence.
class AppendOperation final : public Operation {
 public:
  /// RESOURCE_EXHAUSTED for keys and values with an extent above
  /// `max_dimension`.
  AppendOperation(ResidentAccess access, int64_t max_dimension)
      : access_(std::move(access)), max_dimension_(max_dimension) {}

  const char* name() const override { return "append"; }
  Rpc rpc() const override { return Rpc::kAppend; }
  Work DecodingWork(int64_t message_bytes) const override {
    return WorkOfSplitting(message_bytes);
  }

  /// Unknown fields are refused, as Attend refuses them.
  absl::Status Decode(ReceivedMessage message, HoldBytes hold,
                      RequestFacts& facts) override;
  absl::StatusOr<OperationNeeds> Plan(RequestFacts& facts) override;
  void Gather(WorkerPool* workers) override { elements_.Gather(workers); }
  absl::Status Run(const std::stop_token& stop, const Pauses& pauses,
                   RequestFacts& facts) override;
  absl::StatusOr<ReplyBuffer> Encode(RequestFacts& facts) override;

 private:
  const ResidentAccess access_;
  const int64_t max_dimension_;
  v1::AppendRequest message_;
  MessageElements elements_;
  KeyValueBlock rows_;
  std::shared_ptr<store::Sequence> sequence_;  // in use while this waits
  std::optional<store::Appended> appended_;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_WIRE_APPEND_OPERATION_H_
