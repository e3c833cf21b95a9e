#include "server/wire/reply_encoder.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "attention/v1/attention.pb.h"
#include "server/wire/message_pieces.h"
#include "server/wire/status_table.h"

namespace attention::server {
namespace {

// A backend's and a kernel's name with their headers, and two numbers.
constexpr int64_t kMostFactsBytes = 256;
// Smaller results are copied into the text around them: one slice costs less
// than three.
constexpr int64_t kLeastBytesInASlice = 4096;

v1::DataType ToWire(DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return v1::DATA_TYPE_FP32;
    case DataType::kFloat16:
      return v1::DATA_TYPE_FP16;
    case DataType::kBFloat16:
      return v1::DATA_TYPE_BF16;
    default:
      return v1::DATA_TYPE_UNSPECIFIED;  // no result has another type
  }
}

// Everything of a tensor's field up to its first element.
std::string TensorHeader(int field_number, DataType type, const Shape& shape,
                         int64_t bytes) {
  v1::Tensor tensor;
  tensor.set_datatype(ToWire(type));
  tensor.mutable_shape()->Assign(shape.begin(), shape.end());
  std::string inner = tensor.SerializeAsString();
  inner += FieldHeader(v1::Tensor::kDataFieldNumber, bytes);
  return absl::StrCat(
      FieldHeader(field_number,
                  SaturatingAdd(static_cast<int64_t>(inner.size()), bytes)),
      inner);
}

std::string IdField(const std::string& id) {
  return id.empty()
             ? std::string()
             : absl::StrCat(FieldHeader(v1::AttendResponse::kIdFieldNumber,
                                        static_cast<int64_t>(id.size())),
                            id);
}

std::string FactsFields(const RequestFacts& facts) {
  v1::AttendResponse response;
  response.set_backend(facts.backend);
  response.set_kernel(facts.kernel);
  response.set_queue_ns(static_cast<uint64_t>(facts.queue_time.count()));
  response.set_compute_ns(static_cast<uint64_t>(facts.compute_time.count()));
  return response.SerializeAsString();
}

}  // namespace

ReplyBuilder::ReplyBuilder(std::string id, const ValidatedProblem& problem)
    : id_(std::move(id)),
      has_weights_(problem.wanted.weights),
      has_lse_(problem.wanted.lse) {
  results_.reserve(3);
  Add(v1::AttendResponse::kOutputFieldNumber, "output", problem.query.type,
      problem.output_shape);
  if (has_weights_) {
    Add(v1::AttendResponse::kWeightsFieldNumber, "weights", DataType::kFloat32,
        problem.weights_shape);
  }
  if (has_lse_) {
    Add(v1::AttendResponse::kLseFieldNumber, "lse", DataType::kFloat32,
        problem.lse_shape);
  }
}

void ReplyBuilder::Add(int field_number, const char* name, DataType type,
                       const Shape& shape) {
  // Validate() has seen that they are at most 63 bits each.
  const int64_t bytes = SaturatingBytes(type, shape);
  results_.push_back({field_number,
                      name,
                      type,
                      shape,
                      bytes,
                      TensorHeader(field_number, type, shape, bytes),
                      {}});
}

int64_t ReplyBuilder::Bytes() const {
  // Once in the message, once more around it on a stream.
  int64_t total =
      2 * static_cast<int64_t>(IdField(id_).size()) + kMostFactsBytes;
  for (const Result& result : results_) {
    total = SaturatingAdd(
        total, SaturatingAdd(static_cast<int64_t>(result.header.size()),
                             result.bytes));
  }
  return total;
}

absl::Status ReplyBuilder::CheckFits(int64_t limit) const {
  if (Bytes() <= limit) return absl::OkStatus();
  // The first that does not fit beside those before it; headers alone may also
  // be what is too much, then it is the last.
  const Result* culprit = &results_.back();
  int64_t sum = 0;
  for (const Result& result : results_) {
    sum = SaturatingAdd(sum, result.bytes);
    if (sum > limit) {
      culprit = &result;
      break;
    }
  }
  return absl::ResourceExhaustedError(
      absl::StrCat(culprit->name, ": shape ", ShapeToString(culprit->shape),
                   " takes ", culprit->bytes, " bytes, the reply ", Bytes(),
                   " (at most ", limit, ", the server's max_response_bytes)"));
}

absl::Status ReplyBuilder::Allocate() {
  for (Result& result : results_) {
    absl::StatusOr<AlignedBuffer> buffer = AlignedBuffer::Create(result.bytes);
    if (!buffer.ok()) return buffer.status();
    result.buffer = *std::move(buffer);
  }
  return absl::OkStatus();
}

AttentionOutputs ReplyBuilder::Outputs() {
  AttentionOutputs outputs;
  size_t next = 0;
  const auto take = [&](MutableTensorView& view) {
    Result& result = results_[next++];
    view =
        MutableContiguousView(result.type, result.shape, result.buffer.data());
  };
  take(outputs.output);
  if (has_weights_) take(outputs.weights);
  if (has_lse_) take(outputs.lse);
  return outputs;
}

std::vector<grpc::Slice> ReplyBuilder::Slices(const RequestFacts& facts) {
  std::vector<grpc::Slice> slices;
  std::string text = IdField(id_);
  for (Result& result : results_) {
    text += result.header;
    if (result.bytes < kLeastBytesInASlice) {
      text.append(reinterpret_cast<const char*>(result.buffer.data()),
                  static_cast<size_t>(result.bytes));
      continue;
    }
    slices.emplace_back(text);
    slices.push_back(ToSlice(std::move(result.buffer)));
    text.clear();
  }
  slices.emplace_back(text + FactsFields(facts));
  return slices;
}

grpc::ByteBuffer ReplyBuilder::Build(const RequestFacts& facts) && {
  return ToByteBuffer(Slices(facts));
}

grpc::ByteBuffer ReplyBuilder::BuildForStream(const RequestFacts& facts) && {
  std::vector<grpc::Slice> slices = Slices(facts);
  int64_t bytes = 0;
  for (const grpc::Slice& slice : slices) {
    bytes += static_cast<int64_t>(slice.size());
  }
  // The id has the same field number in both messages.
  static_assert(static_cast<int>(v1::AttendStreamResponse::kIdFieldNumber) ==
                static_cast<int>(v1::AttendResponse::kIdFieldNumber));
  slices.insert(
      slices.begin(),
      grpc::Slice(absl::StrCat(
          IdField(id_),
          FieldHeader(v1::AttendStreamResponse::kResultFieldNumber, bytes))));
  return ToByteBuffer(slices);
}

grpc::ByteBuffer EncodeStreamError(const std::string& id,
                                   const absl::Status& status) {
  const grpc::Status wire = ToGrpcStatus(status);
  v1::AttendStreamResponse response;
  response.set_id(id);
  response.mutable_error()->set_code(static_cast<int>(wire.error_code()));
  response.mutable_error()->set_message(wire.error_message());
  const grpc::Slice slice(response.SerializeAsString());
  return {&slice, 1};
}

}  // namespace attention::server
