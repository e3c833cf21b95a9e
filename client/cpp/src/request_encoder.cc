#include "client/cpp/src/request_encoder.h"

#include <google/protobuf/message_lite.h>

#include <optional>
#include <utility>

#include "attention/v1/attention.pb.h"
#include "client/cpp/src/message_pieces.h"

namespace attention::client {
namespace {

using Wire = v1::AttendRequest;

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
  MessagePieces& message;

  void operator()(const ScaledDotProduct& scoring) const {
    v1::ScaledDotProduct fields;
    if (scoring.scale) fields.set_scale(*scoring.scale);
    Write(Wire::kScaledDotProductFieldNumber, fields, {});
  }
  void operator()(const Additive& scoring) const {
    MessagePieces tensors;
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
    MessagePieces tensors;
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

  void Write(int field_number, const google::protobuf::MessageLite& fields,
             MessagePieces tensors) const {
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

// A v1::KeyValueTensors.
MessagePieces KeysAndValuesOf(const RowsToSend& rows) {
  MessagePieces tensors;
  tensors.Append(v1::KeyValueTensors::kKeyFieldNumber, rows.key);
  tensors.Append(v1::KeyValueTensors::kValueFieldNumber, rows.value);
  tensors.Append(v1::KeyValueTensors::kKeyScaleFieldNumber, rows.key_scale);
  tensors.Append(v1::KeyValueTensors::kValueScaleFieldNumber, rows.value_scale);
  return tensors;
}

// Where keys and values come from.
void AppendKeys(const AttendRequest& request, MessagePieces& message) {
  if (!request.sequences) {
    message.Append(Wire::kKeyValueFieldNumber,
                   KeysAndValuesOf({request.key, request.value,
                                    request.key_scale, request.value_scale}));
    return;
  }
  v1::Sequences fields;
  for (const SequenceLayer& entry : request.sequences->entries) {
    v1::SequenceLayer& layer = *fields.add_entries();
    layer.set_name(entry.name);
    if (entry.layer) layer.set_layer(*entry.layer);
    if (entry.position) layer.set_position(*entry.position);
  }
  MessagePieces sequences;
  sequences.Append(fields.SerializeAsString());
  if (const auto& append = request.sequences->append) {
    sequences.Append(v1::Sequences::kAppendFieldNumber,
                     KeysAndValuesOf({append->key, append->value,
                                      append->key_scale, append->value_scale}));
  }
  message.Append(Wire::kSequencesFieldNumber, std::move(sequences));
}

}  // namespace

grpc::ByteBuffer EncodeRequest(const AttendRequest& request,
                               const std::string& id) {
  Wire scalars;
  scalars.set_id(id);
  SetScalars(request, scalars);
  MessagePieces message;
  message.Append(scalars.SerializeAsString());
  message.Append(Wire::kQueryFieldNumber, request.query);
  AppendKeys(request, message);
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

grpc::ByteBuffer EncodeAppend(const SequenceLayer& to, const RowsToSend& rows) {
  v1::AppendRequest fields;
  fields.set_name(to.name);
  if (to.layer) fields.set_layer(*to.layer);
  if (to.position) fields.set_position(*to.position);
  MessagePieces message;
  message.Append(fields.SerializeAsString());
  message.Append(v1::AppendRequest::kKeyFieldNumber, rows.key);
  message.Append(v1::AppendRequest::kValueFieldNumber, rows.value);
  message.Append(v1::AppendRequest::kKeyScaleFieldNumber, rows.key_scale);
  message.Append(v1::AppendRequest::kValueScaleFieldNumber, rows.value_scale);
  return std::move(message).Build();
}

}  // namespace attention::client
