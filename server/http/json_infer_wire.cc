#include "server/http/json_infer_wire.h"

#include <iterator>
#include <limits>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/http/infer_json.h"
#include "server/request/request_builder.h"
#include "server/wire/infer_values.h"
#include "server/wire/message_pieces.h"

namespace attention::server {
namespace {

using inference::InferParameter;
using inference::ModelInferRequest;
using inference::ModelInferResponse;
using OutputTensor = ModelInferResponse::InferOutputTensor;

bool IsRegionKey(const std::string& key) {
  return key.starts_with("shared_memory_");
}

// A flag among parameters; none where it is not there.
absl::StatusOr<std::optional<bool>> FlagOf(absl::string_view of,
                                           const InferParameters& parameters,
                                           const std::string& key) {
  const auto found = parameters.find(key);
  if (found == parameters.end()) return std::nullopt;
  if (!found->second.has_bool_param()) {
    return FieldError(absl::StrCat(of, ".", key),
                      "no boolean (expected true or false)");
  }
  return found->second.bool_param();
}

void WriteParameter(const InferParameter& value, JsonText& text) {
  switch (value.parameter_choice_case()) {
    case InferParameter::kBoolParam:
      return text.Add(value.bool_param() ? "true" : "false");
    case InferParameter::kInt64Param:
      return text.Add(absl::StrCat(value.int64_param()));
    case InferParameter::kUint64Param:
      return text.Add(absl::StrCat(value.uint64_param()));
    case InferParameter::kStringParam:
      return text.AddString(value.string_param());
    default:
      return text.Add("null");
  }
}

void WriteParameters(const InferParameters& parameters, JsonText& text) {
  text.Add("{");
  const char* comma = "";
  for (const auto& [key, value] : parameters) {
    text.Add(comma);
    text.AddString(key);
    text.Add(":");
    WriteParameter(value, text);
    comma = ",";
  }
  text.Add("}");
}

// The message that gRPC has for it; `body` is cut into the elements that follow
// the JSON.
absl::StatusOr<std::vector<grpc::Slice>> ToMessage(InferJson json,
                                                   const grpc::Slice& body,
                                                   size_t json_bytes) {
  std::vector<grpc::Slice> message = {
      grpc::Slice(json.fields.SerializeAsString())};
  const auto add = [&message](grpc::Slice elements) {
    message.emplace_back(
        FieldHeader(ModelInferRequest::kRawInputContentsFieldNumber,
                    static_cast<int64_t>(elements.size())));
    if (elements.size() > 0) message.push_back(std::move(elements));
  };
  size_t next = json_bytes;
  for (size_t i = 0; i < json.inputs.size(); ++i) {
    InferJson::Input& input = json.inputs[i];
    if (input.in_region) continue;
    if (input.elements) {
      add((*std::move(input.elements)).ToSlice());
      continue;
    }
    const auto bytes = static_cast<uint64_t>(*input.binary_bytes);
    if (bytes > body.size() - next) {
      return FieldError(
          absl::StrCat(json.fields.inputs(static_cast<int>(i)).name(),
                       ".binary_data_size"),
          absl::StrCat(bytes, " bytes (", body.size() - next,
                       " are left behind the JSON)"));
    }
    add(body.sub(next, next + bytes));
    next += bytes;
  }
  if (next == body.size()) return message;
  return FieldError("body", absl::StrCat(body.size() - next,
                                         " bytes more than its JSON and the "
                                         "inputs' binary_data_size say"));
}

}  // namespace

absl::StatusOr<size_t> JsonInferWire::JsonBytes(size_t body_bytes) const {
  if (!head_.json_bytes) return body_bytes;
  uint64_t bytes = 0;
  if (!absl::SimpleAtoi(*head_.json_bytes, &bytes) || bytes > body_bytes) {
    return FieldError(
        kJsonLengthHeader,
        absl::StrCat("'", head_.json_bytes->substr(0, 64), "' (expected 0 to ",
                     body_bytes, ", the body's length)"));
  }
  return bytes;
}

absl::StatusOr<AttentionRequest> JsonInferWire::Decode(ReceivedMessage body,
                                                       HoldBytes hold) {
  std::vector<grpc::Slice> message;
  {
    const ReceivedMessage parts = std::move(body);
    const grpc::Slice whole =
        parts.slices().empty() ? grpc::Slice() : parts.slices().front();
    const absl::StatusOr<size_t> bytes = JsonBytes(whole.size());
    if (!bytes.ok()) return bytes.status();
    absl::StatusOr<InferJson> json = ReadInferJson(
        {reinterpret_cast<const char*>(whole.begin()), *bytes}, head_.none);
    if (!json.ok()) return json.status();
    json->fields.set_model_name(head_.model);
    json->fields.set_model_version(head_.version);
    const auto all =
        FlagOf("parameters", json->fields.parameters(), "binary_data_output");
    if (!all.ok()) return all.status();
    all_binary_ = all->value_or(false);
    for (const auto& output : json->fields.outputs()) {
      const auto flag =
          FlagOf(output.name(), output.parameters(), "binary_data");
      if (!flag.ok()) return flag.status();
      outputs_.push_back(output);
    }
    auto made = ToMessage(*std::move(json), whole, *bytes);
    if (!made.ok()) return made.status();
    message = *std::move(made);
  }
  return InferWire::Decode(std::move(message), hold);
}

bool JsonInferWire::IsBinary(const std::string& name) const {
  const auto output = absl::c_find_if(
      outputs_, [&](const auto& wanted) { return wanted.name() == name; });
  if (output == outputs_.end()) return all_binary_;
  const auto flag = output->parameters().find("binary_data");
  return flag == output->parameters().end() ? all_binary_
                                            : flag->second.bool_param();
}

int64_t JsonInferWire::BytesBeside(int64_t element_bytes) const {
  // Names and parameters of at most three outputs, more in words than in bytes.
  const int64_t other =
      4 * OtherBytes() + 2 * static_cast<int64_t>(id().size());
  const bool text = outputs_.empty()
                        ? !all_binary_
                        : !absl::c_all_of(outputs_, [this](const auto& output) {
                            return IsBinary(output.name());
                          });
  if (!text) return other;
  const int64_t most =
      (std::numeric_limits<int64_t>::max() - other) / kMostTextPerByte;
  return element_bytes > most ? std::numeric_limits<int64_t>::max()
                              : kMostTextPerByte * element_bytes + other;
}

void JsonInferWire::WriteOutput(const OutputTensor& output,
                                const grpc::Slice& elements,
                                JsonText& text) const {
  text.Add("{\"name\":");
  text.AddString(output.name());
  text.Add(absl::StrCat(",\"datatype\":\"", output.datatype(), "\",\"shape\":[",
                        absl::StrJoin(output.shape(), ","), "]"));
  const auto wanted = absl::c_find_if(
      outputs_, [&](const auto& one) { return one.name() == output.name(); });
  InferParameters place;
  if (wanted != outputs_.end()) {
    for (const auto& [key, value] : wanted->parameters()) {
      if (IsRegionKey(key)) place[key] = value;
    }
  }
  if (place.empty() && IsBinary(output.name())) {
    place["binary_data_size"].set_uint64_param(elements.size());
  }
  if (!place.empty()) {
    text.Add(",\"parameters\":");
    WriteParameters(place, text);
  } else {
    text.Add(",\"data\":[");
    text.AddElements(*DataTypeFromName(output.datatype()),
                     {reinterpret_cast<const std::byte*>(elements.begin()),
                      elements.size()});
    text.Add("]");
  }
  text.Add("}");
}

grpc::ByteBuffer JsonInferWire::Assemble(const ModelInferResponse& fields,
                                         std::vector<grpc::Slice> elements) {
  JsonText text;
  text.Add("{\"model_name\":");
  text.AddString(fields.model_name());
  text.Add(",\"model_version\":");
  text.AddString(fields.model_version());
  if (!fields.id().empty()) {
    text.Add(",\"id\":");
    text.AddString(fields.id());
  }
  text.Add(",\"parameters\":");
  WriteParameters(fields.parameters(), text);
  text.Add(",\"outputs\":[");
  std::vector<grpc::Slice> behind;
  bool binary = false;
  for (int i = 0; i < fields.outputs_size(); ++i) {
    const OutputTensor& output = fields.outputs(i);
    grpc::Slice& own = elements[static_cast<size_t>(i)];
    if (i > 0) text.Add(",");
    WriteOutput(output, own, text);
    if (IsBinary(output.name())) {
      binary = true;
      behind.push_back(own);
    }
    own = grpc::Slice();  // the text has it, or it follows
  }
  text.Add("]}");
  if (binary) reply_->json_bytes = text.size();
  std::vector<grpc::Slice> message = std::move(text).Take();
  absl::c_move(behind, std::back_inserter(message));
  return ToByteBuffer(message);
}

}  // namespace attention::server
