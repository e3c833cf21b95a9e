#include <random>
#include <utility>
#include <vector>

#include "benchmarks/load/api.h"
#include "client/cpp/src/reply_decoder.h"
#include "client/cpp/src/request_encoder.h"
#include "client/cpp/src/status.h"
#include "client/cpp/src/wire.h"
#include "core/element.h"

namespace attention::bench {
namespace {

DataType TypeOf(const LoadShape& shape) {
  if (shape.type == "FP16") return DataType::kFloat16;
  if (shape.type == "BF16") return DataType::kBFloat16;
  return DataType::kFloat32;
}

// Numbers as networks have them: normally distributed around 0.
absl::StatusOr<Tensor> RandomTensor(DataType type, const Shape& shape,
                                    uint32_t seed) {
  absl::StatusOr<Tensor> tensor = Tensor::CreateUninitialized(type, shape);
  if (!tensor.ok()) return tensor.status();
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  const int64_t step = ByteSize(tensor->type());
  for (int64_t i = 0; i < tensor->element_count(); ++i) {
    StoreElement(tensor->type(), normal(random), tensor->data() + i * step);
  }
  return tensor;
}

absl::Status MakeAdditive(const LoadShape& shape,
                          client::AttendRequest& request) {
  absl::StatusOr<Tensor> w_q =
      RandomTensor(DataType::kFloat32, {shape.width, shape.hidden}, 4);
  absl::StatusOr<Tensor> w_k =
      RandomTensor(DataType::kFloat32, {shape.width, shape.hidden}, 5);
  absl::StatusOr<Tensor> w_v =
      RandomTensor(DataType::kFloat32, {shape.hidden}, 6);
  for (const auto* made : {&w_q, &w_k, &w_v}) {
    if (!made->ok()) return made->status();
  }
  request.scoring =
      client::Additive{*std::move(w_q), *std::move(w_k), *std::move(w_v)};
  return absl::OkStatus();
}

class NativeApi final : public Api {
 public:
  explicit NativeApi(client::AttendRequest request)
      : request_(std::move(request)) {}

  const char* unary_method() const override {
    return "/attention.v1.AttentionService/Attend";
  }
  const char* stream_method() const override {
    return "/attention.v1.AttentionService/AttendStream";
  }

  grpc::ByteBuffer Encode(const std::string& id) const override {
    return client::EncodeRequest(request_, id);
  }

  absl::StatusOr<ReplyFacts> DecodeUnary(
      grpc::ByteBuffer& message) const override {
    absl::StatusOr<client::Reply> reply = client::DecodeReply(message);
    if (!reply.ok()) return reply.status();
    return Facts(*std::move(reply));
  }

  absl::StatusOr<ReplyFacts> DecodeStream(
      grpc::ByteBuffer& message) const override {
    absl::StatusOr<client::StreamReply> reply =
        client::DecodeStreamReply(message);
    if (!reply.ok()) return reply.status();
    if (!reply->result) {
      return client::ToAbslStatus(reply->fields.error());
    }
    absl::StatusOr<ReplyFacts> facts = Facts(*std::move(reply->result));
    if (facts.ok()) facts->id = reply->fields.id();
    return facts;
  }

 private:
  absl::StatusOr<ReplyFacts> Facts(client::Reply reply) const {
    const absl::StatusOr<client::AttendResult> result =
        client::ToResult(request_, std::move(reply));
    if (!result.ok()) return result.status();
    return ReplyFacts{result->id, result->compute_time, result->queue_time};
  }

  const client::AttendRequest request_;
};

}  // namespace

int64_t LoadShape::TensorBytes() const {
  return batch * heads * length * width * ByteSize(TypeOf(*this));
}

absl::StatusOr<std::vector<Tensor>> RandomInputs(const LoadShape& shape) {
  std::vector<Tensor> inputs;
  for (const uint32_t seed : {1U, 2U, 3U}) {
    absl::StatusOr<Tensor> random = RandomTensor(
        TypeOf(shape), {shape.batch, shape.heads, shape.length, shape.width},
        seed);
    if (!random.ok()) return random.status();
    inputs.push_back(*std::move(random));
  }
  return inputs;
}

absl::StatusOr<std::unique_ptr<Api>> MakeNativeApi(const LoadShape& shape) {
  absl::StatusOr<std::vector<Tensor>> inputs = RandomInputs(shape);
  if (!inputs.ok()) return inputs.status();
  client::AttendRequest request;
  request.query = std::move((*inputs)[0]);
  request.key = std::move((*inputs)[1]);
  request.value = std::move((*inputs)[2]);
  if (shape.hidden > 0) {
    absl::Status status = MakeAdditive(shape, request);
    if (!status.ok()) return status;
  }
  return std::make_unique<NativeApi>(std::move(request));
}

}  // namespace attention::bench
