#include "server/wire/append_operation.h"

#include "server/request/request_builder.h"
#include "server/request/request_limits.h"
#include "server/wire/data_types.h"

namespace attention::server {
namespace {

constexpr absl::string_view kTypes = "FP32, FP16, BF16, INT8 or FP8";

// Copying less costs less than to hand it to a worker.
constexpr int64_t kMostBytesAtOnce = 64 << 10;

const SplitRules& AppendRules() {
  static const auto* const rules =
      new SplitRules{*v1::AppendRequest::descriptor(),
                     {v1::Tensor::descriptor()->FindFieldByNumber(
                         v1::Tensor::kDataFieldNumber)}};
  return *rules;
}

absl::StatusOr<TensorView> ViewOf(absl::string_view field, bool given,
                                  const v1::Tensor& tensor,
                                  MessageElements& elements,
                                  absl::string_view types = kTypes) {
  if (!given) return FieldError(field, "missing");
  const absl::StatusOr<DataType> type = DataTypeOf(field, tensor, types);
  if (!type.ok()) return type.status();
  const TensorBytes* const bytes = elements.Find(tensor.data());
  return ViewOfBytes(
      field, *type, tensor.shape(),
      bytes == nullptr ? absl::Span<const std::byte>() : bytes->bytes());
}

absl::Status ReadScale(absl::string_view field, bool given,
                       const v1::Tensor& tensor, MessageElements& elements,
                       std::optional<TensorView>& scale) {
  if (!given) return absl::OkStatus();
  absl::StatusOr<TensorView> view =
      ViewOf(field, given, tensor, elements, "FP32");
  if (!view.ok()) return view.status();
  scale = *std::move(view);
  return absl::OkStatus();
}

}  // namespace

absl::Status AppendOperation::Decode(ReceivedMessage message, HoldBytes,
                                     RequestFacts&) {
  absl::StatusOr<MessageElements> elements =
      SplitMessage(std::move(message), AppendRules(), message_);
  if (!elements.ok()) return elements.status();
  elements_ = *std::move(elements);
  absl::StatusOr<TensorView> key =
      ViewOf("key", message_.has_key(), message_.key(), elements_);
  if (!key.ok()) return key.status();
  absl::StatusOr<TensorView> value =
      ViewOf("value", message_.has_value(), message_.value(), elements_);
  if (!value.ok()) return value.status();
  rows_ = {*std::move(key), *std::move(value)};
  absl::Status status =
      ReadScale("key_scale", message_.has_key_scale(), message_.key_scale(),
                elements_, rows_.key_scale);
  status.Update(ReadScale("value_scale", message_.has_value_scale(),
                          message_.value_scale(), elements_,
                          rows_.value_scale));
  return status;
}

absl::StatusOr<OperationNeeds> AppendOperation::Plan(RequestFacts& facts) {
  // What is not there is told at once, and not after a turn in the queue.
  auto found =
      access_.store->Find(access_.owner, message_.name(), store::Clock::now());
  if (!found.ok()) return Named("name", found.status());
  sequence_ = *std::move(found);
  absl::Status status = CheckKeyValueDimensions(
      rows_.key.shape, rows_.value.shape, max_dimension_);
  if (!status.ok()) return status;
  OperationNeeds needs;
  needs.reply_bytes = static_cast<int64_t>(v1::AppendResponse().ByteSizeLong());
  needs.work = {Work::kCopy, static_cast<double>(facts.request_bytes)};
  // gRPC's thread does not wait for whoever appends much to the same layer.
  needs.quick = facts.request_bytes <= kMostBytesAtOnce &&
                !sequence_->IsChanging(message_.layer());
  return needs;
}

absl::Status AppendOperation::Run(const std::stop_token&, const Pauses&,
                                  RequestFacts& facts) {
  std::optional<int64_t> position;
  if (message_.has_position()) position = message_.position();
  absl::StatusOr<store::Appended> appended = access_.store->Append(
      access_.owner, message_.name(), message_.layer(), position, rows_,
      store::Clock::now(), sequence_.get());
  // It was used until now: it may have waited for others, or copied much.
  access_.store->Find(access_.owner, message_.name(), store::Clock::now())
      .IgnoreError();
  if (!appended.ok()) return appended.status();
  facts.parts = 1;
  facts.repeatable = message_.has_position();
  appended_ = *std::move(appended);
  return absl::OkStatus();
}

absl::StatusOr<ReplyBuffer> AppendOperation::Encode(RequestFacts&) {
  v1::AppendResponse response;
  response.set_length(appended_->length);
  response.set_new_keys(appended_->new_keys);
  const grpc::Slice slice(response.SerializeAsString());
  return ReplyBuffer(&slice, 1);
}

}  // namespace attention::server
