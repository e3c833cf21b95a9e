#include "client/cpp/src/request_encoder.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/support/slice.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "attention/v1/attention.pb.h"
#include "client/cpp/src/wire_tensor.h"

namespace attention::client {
namespace {

namespace pb = google::protobuf;
using pb::internal::WireFormatLite;
using Wire = v1::AttendRequest;

// Smaller tensors are copied: that costs less than a slice of their own.
constexpr int64_t kLeastBytesShared = 16 << 10;

// A slice of the tensor's own bytes.
grpc::Slice Share(const Tensor& tensor) {
  using Bytes = std::shared_ptr<const std::byte[]>;
  auto owner = std::make_unique<Bytes>(tensor.shared_bytes());
  // gRPC takes memory that it may write to, and does not write to it.
  void* bytes = const_cast<std::byte*>(owner->get());
  const auto destroy = [](void* kept) { delete static_cast<Bytes*>(kept); };
  return {bytes, static_cast<size_t>(tensor.byte_size()), destroy,
          owner.release()};
}

// A message, or a part of one, as pieces: text of our own and tensors' bytes.
class Pieces {
 public:
  void Append(absl::string_view text) {
    text_.append(text.data(), text.size());
    bytes_ += static_cast<int64_t>(text.size());
  }

  // A field of this number that holds `inner`.
  void Append(int field_number, Pieces inner) {
    AppendHeader(field_number, inner.bytes_);
    bytes_ += inner.bytes_;
    if (inner.shared_.empty()) {
      text_ += inner.text_;
      return;
    }
    inner.shared_.front().text_before.insert(0, text_);
    for (Shared& shared : inner.shared_) shared_.push_back(std::move(shared));
    text_ = std::move(inner.text_);
  }

  // A field of this number that holds the tensor.
  void Append(int field_number, const Tensor& tensor) {
    Pieces inner;
    v1::Tensor header;
    DescribeTensor(tensor, header);
    inner.Append(header.SerializeAsString());
    if (const int64_t size = tensor.byte_size(); size > 0) {
      inner.AppendHeader(v1::Tensor::kDataFieldNumber, size);
      if (size < kLeastBytesShared) {
        inner.Append({reinterpret_cast<const char*>(tensor.data()),
                      static_cast<size_t>(size)});
      } else {
        inner.shared_.push_back(
            {std::exchange(inner.text_, {}), Share(tensor)});
        inner.bytes_ += size;
      }
    }
    Append(field_number, std::move(inner));
  }
  void Append(int field_number, const std::optional<Tensor>& tensor) {
    if (tensor) Append(field_number, *tensor);
  }

  grpc::ByteBuffer Build() && {
    std::vector<grpc::Slice> slices;
    slices.reserve(2 * shared_.size() + 1);
    for (Shared& shared : shared_) {
      slices.emplace_back(shared.text_before);
      slices.push_back(std::move(shared.bytes));
    }
    slices.emplace_back(text_);
    return {slices.data(), slices.size()};
  }

 private:
  struct Shared {
    std::string text_before;
    grpc::Slice bytes;
  };

  void AppendHeader(int field_number, int64_t length) {
    uint8_t header[20];
    uint8_t* end = pb::io::CodedOutputStream::WriteVarint32ToArray(
        WireFormatLite::MakeTag(field_number,
                                WireFormatLite::WIRETYPE_LENGTH_DELIMITED),
        header);
    end = pb::io::CodedOutputStream::WriteVarint64ToArray(
        static_cast<uint64_t>(length), end);
    Append({reinterpret_cast<const char*>(header),
            static_cast<size_t>(end - header)});
  }

  std::vector<Shared> shared_;
  std::string text_;  // what follows them
  int64_t bytes_ = 0;
};

v1::Causal ToProto(Causal causal) {
  switch (causal) {
    case Causal::kNone:
      return v1::CAUSAL_NONE;
    case Causal::kTopLeft:
      return v1::CAUSAL_TOP_LEFT;
    case Causal::kBottomRight:
      return v1::CAUSAL_BOTTOM_RIGHT;
  }
  return v1::CAUSAL_NONE;
}

v1::Scores ToProto(Scores scores) {
  switch (scores) {
    case Scores::kScaled:
      return v1::SCORES_SCALED;
    case Scores::kCapped:
      return v1::SCORES_CAPPED;
    case Scores::kMasked:
      return v1::SCORES_MASKED;
  }
  return v1::SCORES_NONE;
}

// Adds the scoring function; its field is written whole, parameters that are
// tensors with it.
struct ScoringWriter {
  Pieces& message;

  void operator()(const ScaledDotProduct& scoring) const {
    v1::ScaledDotProduct fields;
    if (scoring.scale) fields.set_scale(*scoring.scale);
    Write(Wire::kScaledDotProductFieldNumber, fields, {});
  }
  void operator()(const Additive& scoring) const {
    Pieces tensors;
    tensors.Append(v1::Additive::kWQFieldNumber, scoring.w_q);
    tensors.Append(v1::Additive::kWKFieldNumber, scoring.w_k);
    tensors.Append(v1::Additive::kWVFieldNumber, scoring.w_v);
    message.Append(Wire::kAdditiveFieldNumber, std::move(tensors));
  }
  void operator()(const Gaussian& scoring) const {
    v1::Gaussian fields;
    if (scoring.sigma) fields.set_sigma(*scoring.sigma);
    Write(Wire::kGaussianFieldNumber, fields, {});
  }
  void operator()(const Bilinear& scoring) const {
    v1::Bilinear fields;
    if (scoring.scale) fields.set_scale(*scoring.scale);
    Pieces tensors;
    tensors.Append(v1::Bilinear::kMFieldNumber, scoring.m);
    Write(Wire::kBilinearFieldNumber, fields, std::move(tensors));
  }
  void operator()(const ParameterSet& scoring) const {
    v1::ParameterSet fields;
    fields.set_name(scoring.name);
    if (scoring.scale) fields.set_scale(*scoring.scale);
    if (scoring.sigma) fields.set_sigma(*scoring.sigma);
    Write(Wire::kParameterSetFieldNumber, fields, {});
  }

  void Write(int field_number, const pb::MessageLite& fields,
             Pieces tensors) const {
    tensors.Append(fields.SerializeAsString());
    message.Append(field_number, std::move(tensors));
  }
};

// Every field that is a number of its own.
void SetScalars(const AttendRequest& request, Wire& message) {
  if (request.softcap) message.set_softcap(*request.softcap);
  if (request.causal) message.set_causal(ToProto(*request.causal));
  if (request.query_offset) message.set_query_offset(*request.query_offset);
  if (request.key_offset) message.set_key_offset(*request.key_offset);
  if (request.window_left) message.set_window_left(*request.window_left);
  if (request.window_right) message.set_window_right(*request.window_right);
  if (request.training) message.set_training(*request.training);
  if (request.dropout_p) message.set_dropout_p(*request.dropout_p);
  if (request.seed) message.set_seed(*request.seed);
  if (request.weights_after_dropout) {
    message.set_weights_after_dropout(*request.weights_after_dropout);
  }
  if (request.empty_rows) {
    message.set_empty_rows(*request.empty_rows == EmptyRows::kUniform
                               ? v1::EMPTY_ROWS_UNIFORM
                               : v1::EMPTY_ROWS_ZERO);
  }
  if (request.return_weights) message.set_return_weights(true);
  if (request.return_lse) message.set_return_lse(true);
  if (request.top_k) message.set_top_k(*request.top_k);
  if (request.return_key_weights) message.set_return_key_weights(true);
  if (request.scores) message.set_scores(ToProto(*request.scores));
}

}  // namespace

grpc::ByteBuffer EncodeRequest(const AttendRequest& request,
                               const std::string& id) {
  Wire scalars;
  scalars.set_id(id);
  SetScalars(request, scalars);
  Pieces message;
  message.Append(scalars.SerializeAsString());
  message.Append(Wire::kQueryFieldNumber, request.query);
  Pieces key_value;
  key_value.Append(v1::KeyValueTensors::kKeyFieldNumber, request.key);
  key_value.Append(v1::KeyValueTensors::kValueFieldNumber, request.value);
  key_value.Append(v1::KeyValueTensors::kKeyScaleFieldNumber,
                   request.key_scale);
  key_value.Append(v1::KeyValueTensors::kValueScaleFieldNumber,
                   request.value_scale);
  message.Append(Wire::kKeyValueFieldNumber, std::move(key_value));
  std::visit(ScoringWriter{message}, request.scoring);
  message.Append(Wire::kValidLensFieldNumber, request.valid_lens);
  message.Append(Wire::kAttendMaskFieldNumber, request.attend_mask);
  message.Append(Wire::kBiasFieldNumber, request.bias);
  message.Append(Wire::kAlibiSlopesFieldNumber, request.alibi_slopes);
  message.Append(Wire::kSinksFieldNumber, request.sinks);
  message.Append(Wire::kQueryOffsetsFieldNumber, request.query_offsets);
  message.Append(Wire::kQueryStartsFieldNumber, request.query_starts);
  message.Append(Wire::kKeyStartsFieldNumber, request.key_starts);
  return std::move(message).Build();
}

}  // namespace attention::client
