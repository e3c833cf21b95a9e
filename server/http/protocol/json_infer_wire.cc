#include "server/http/protocol/json_infer_wire.h"

#include <iterator>
#include <limits>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/http/protocol/infer_json.h"
#include "server/http/protocol/json_elements.h"
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

// Elements that are in the JSON, or in what of the body is behind it.
class JsonInputs final : public InputElements {
 public:
  JsonInputs(const ModelInferRequest& fields,
             const std::vector<InferJson::Input>& inputs,
             absl::Span<const std::byte> behind, HoldBytes hold)
      : fields_(fields), inputs_(inputs), behind_(behind), hold_(hold) {}

  absl::Status Set(int index, const TensorField& field, DataType type,
                   RequestBuilder& builder) override {
    const auto& shape = fields_.inputs(index).shape();
    const InferJson::Input& input = inputs_[static_cast<size_t>(index)];
    if (input.data) {
      absl::Status held;
      absl::StatusOr<AlignedBuffer> elements = ReadJsonElements(
          *input.data, type, shape,
          [this, &held](int64_t bytes) { return held = hold_(bytes); });
      if (!held.ok()) return held;  // that is about no field
      if (!elements.ok()) {
        return Named(absl::StrCat(field.name, ".data"), elements.status());
      }
      return builder.SetTensor(field, type, shape, *std::move(elements));
    }
    const auto bytes = static_cast<uint64_t>(input.binary_bytes.value_or(0));
    if (bytes > behind_.size()) {
      return FieldError(absl::StrCat(field.name, ".binary_data_size"),
                        absl::StrCat(bytes, " bytes (", behind_.size(),
                                     " are left behind the JSON)"));
    }
    const absl::Span<const std::byte> elements = behind_.first(bytes);
    behind_.remove_prefix(bytes);
    return builder.SetTensor(field, type, shape, elements);
  }

  absl::Status CheckAllSet() const override {
    if (behind_.empty()) return absl::OkStatus();
    return FieldError("body", absl::StrCat(behind_.size(),
                                           " bytes more than its JSON and the "
                                           "inputs' binary_data_size say"));
  }

 private:
  const ModelInferRequest& fields_;
  const std::vector<InferJson::Input>& inputs_;
  absl::Span<const std::byte> behind_;  // what no input has yet
  const HoldBytes hold_;
};

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

Work JsonInferWire::DecodingWork(int64_t body_bytes) const {
  constexpr size_t kMostAtOnce = 64 << 10;  // less than a millisecond
  const absl::StatusOr<size_t> json =
      JsonBytes(static_cast<size_t>(body_bytes));
  if (!json.ok()) return {};  // it is refused before anything is read
  if (*json <= kMostAtOnce) return WorkOfSplitting(body_bytes);
  return {Work::kDecodeJson, static_cast<double>(*json)};
}

absl::Status JsonInferWire::ReadFlags() {
  const auto all =
      FlagOf("parameters", message().parameters(), "binary_data_output");
  if (!all.ok()) return all.status();
  all_binary_ = all->value_or(false);
  for (const auto& output : message().outputs()) {
    const auto flag = FlagOf(output.name(), output.parameters(), "binary_data");
    if (!flag.ok()) return flag.status();
  }
  return absl::OkStatus();
}

absl::StatusOr<AttentionRequest> JsonInferWire::Decode(ReceivedMessage body,
                                                       HoldBytes hold) {
  const ReceivedMessage parts = std::move(body);
  const grpc::Slice whole =
      parts.slices().empty() ? grpc::Slice() : parts.slices().front();
  const absl::StatusOr<size_t> bytes = JsonBytes(whole.size());
  if (!bytes.ok()) return bytes.status();
  InferJson json;
  absl::Status read = ReadInferJson(
      {reinterpret_cast<const char*>(whole.begin()), *bytes}, hold, json);
  if (!json.read) return read;
  message() = std::move(json.fields);
  const std::string named = message().model_name();
  if (!named.empty() && named != head_.model) {
    read.Update(FieldError(
        "model_name", absl::StrCat("'", named, "' (expected '", head_.model,
                                   "', as in the path, or none)")));
  }
  message().set_model_name(head_.model);
  message().set_model_version(head_.version);
  read.Update(ReadFlags());
  const absl::Span<const std::byte> behind(
      reinterpret_cast<const std::byte*>(whole.begin()) + *bytes,
      whole.size() - *bytes);
  JsonInputs inputs(message(), json.inputs, behind, hold);
  if (!behind.empty()) body_ = ReceivedSlice(whole);
  return ToRequest(read, inputs, hold);
}

bool JsonInferWire::IsBinary(const std::string& name) const {
  const auto output = absl::c_find_if(
      message().outputs(),
      [&](const auto& wanted) { return wanted.name() == name; });
  if (output == message().outputs().end()) return all_binary_;
  const auto flag = output->parameters().find("binary_data");
  return flag == output->parameters().end() ? all_binary_
                                            : flag->second.bool_param();
}

int64_t JsonInferWire::BytesBeside(int64_t element_bytes) const {
  // Names and parameters of the outputs, more in words than in bytes.
  const int64_t other =
      4 * OtherBytes() + 2 * static_cast<int64_t>(id().size());
  const auto is_binary = [this](const auto& output) {
    return IsBinary(output.name());
  };
  const bool text = message().outputs().empty()
                        ? !all_binary_
                        : !absl::c_all_of(message().outputs(), is_binary);
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
  const auto& asked = message().outputs();
  const auto wanted = absl::c_find_if(
      asked, [&](const auto& one) { return one.name() == output.name(); });
  InferParameters place;
  if (wanted != asked.end() && NamesRegion(wanted->parameters())) {
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

ReplyBuffer JsonInferWire::Assemble(const ModelInferResponse& fields,
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
  return ToReplyBuffer(message);
}

}  // namespace attention::server
