#include "client/cpp/src/sequence_messages.h"

#include <chrono>
#include <optional>

#include "absl/strings/str_cat.h"
#include "client/cpp/src/wire_tensor.h"

namespace attention::client {
namespace {

using std::chrono::milliseconds;

template <typename Message>
void SetIdleLimit(const std::optional<milliseconds>& limit, Message& message) {
  if (limit) message.set_idle_limit_ms(limit->count());
}

}  // namespace

absl::StatusOr<v1::CreateSequencesRequest> ToProto(
    const std::vector<NewSequence>& sequences) {
  v1::CreateSequencesRequest request;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const NewSequence& sequence = sequences[i];
    const SequenceForm& form = sequence.form;
    if (!HasWireType(form.datatype)) {
      return absl::InvalidArgumentError(
          absl::StrCat("sequences[", i, "]: datatype: ", Name(form.datatype),
                       " (expected FP32, FP16, BF16, INT8 or FP8)"));
    }
    v1::NewSequence& message = *request.add_sequences();
    v1::SequenceForm& to = *message.mutable_form();
    to.set_heads(form.heads);
    to.set_key_width(form.key_width);
    to.set_value_width(form.value_width);
    to.set_datatype(ToWire(form.datatype));
    to.set_layers(form.layers);
    message.set_name(sequence.name);
    message.set_label(sequence.label);
    SetIdleLimit(sequence.idle_limit, message);
  }
  return request;
}

v1::ForkRequest ToProto(const std::string& name, const NewFork& fork) {
  v1::ForkRequest request;
  request.set_name(name);
  if (fork.length) request.set_length(*fork.length);
  request.set_new_name(fork.name);
  if (fork.label) request.set_label(*fork.label);
  SetIdleLimit(fork.idle_limit, request);
  return request;
}

v1::ListSequencesRequest ToProto(const SequenceQuery& query) {
  v1::ListSequencesRequest request;
  if (query.label) {
    request.set_label(*query.label);
  } else {
    request.set_label_prefix(query.label_prefix);
  }
  if (query.page_size) request.set_page_size(*query.page_size);
  request.set_page_token(query.page_token);
  return request;
}

v1::ImportSequenceRequest ToProto(const SequenceImport& import) {
  v1::ImportSequenceRequest request;
  request.set_file(import.file);
  request.set_name(import.name);
  request.set_label(import.label);
  SetIdleLimit(import.idle_limit, request);
  return request;
}

absl::StatusOr<SequenceDescription> FromProto(
    const v1::SequenceDescription& message) {
  const v1::SequenceForm& form = message.form();
  const std::optional<DataType> datatype = FromWire(form.datatype());
  if (!datatype) {
    return absl::InternalError(
        absl::StrCat("reply: datatype of sequence '", message.name(),
                     "': ", static_cast<int>(form.datatype())));
  }
  SequenceDescription description;
  description.name = message.name();
  description.label = message.label();
  description.form = {.heads = form.heads(),
                      .key_width = form.key_width(),
                      .value_width = form.value_width(),
                      .datatype = *datatype,
                      .layers = form.has_layers() ? form.layers() : 1};
  description.lengths = {message.lengths().begin(), message.lengths().end()};
  description.bytes = message.bytes();
  if (message.has_idle_limit_ms()) {
    description.idle_limit = milliseconds(message.idle_limit_ms());
  }
  description.idle = milliseconds(message.idle_ms());
  description.incarnation = message.incarnation();
  return description;
}

}  // namespace attention::client
