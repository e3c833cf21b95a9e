#include "server/http/protocol/infer_json.h"

#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/base/json.h"
#include "server/base/utf8.h"
#include "server/http/protocol/infer_json_data.h"
#include "server/request/request_builder.h"
#include "server/wire/infer_values.h"

namespace attention::server {
namespace {

using InputTensor = inference::ModelInferRequest::InferInputTensor;
using RequestedOutput =
    inference::ModelInferRequest::InferRequestedOutputTensor;

// An object as it is written: a key that comes twice is there twice.
template <typename Key, typename Value, typename Less, typename Allocator>
struct EveryMember : nlohmann::ordered_map<Key, Value, Less, Allocator> {
  // What the library's parser makes members with.
  Value& operator[](const Key& key) {
    this->emplace_back(key, Value());
    return this->back().second;
  }
};
using RequestJson = nlohmann::basic_json<EveryMember>;

constexpr char kParameters[] = "parameters";
constexpr size_t kMostTensors = 64;
// Of a caller's text that is in a message.
constexpr size_t kMostKeyTold = 64;

absl::Status Expected(absl::string_view where, const RequestJson& had,
                      absl::string_view expected) {
  return WrongValue(where, Json(had), expected);
}

// A key that is known, and what reads its value.
struct Member {
  const char* key;
  std::function<absl::Status(const std::string& where,
                             const RequestJson& value)>
      read;
};

// A mask that was ignored would give a wrong answer.
absl::Status UnknownKey(absl::string_view where,
                        const std::vector<Member>& known) {
  const auto key = [](std::string* to, const Member& one) { *to += one.key; };
  return FieldError(
      absl::CHexEscape(TruncateUtf8(where, 2 * kMostKeyTold)),
      absl::StrCat("unknown key (expected ", absl::StrJoin(known, ", ", key),
                   "; options and other settings belong in parameters)"));
}

// `prefix` is what stands before a key in messages; it may change as members
// are read.
absl::Status ReadMembers(const RequestJson& object,
                         const std::function<std::string()>& prefix,
                         const std::vector<Member>& members) {
  std::set<absl::string_view> read;
  for (const auto& [key, value] :
       object.get_ref<const RequestJson::object_t&>()) {
    const auto member = absl::c_find_if(
        members, [&key = key](const Member& one) { return one.key == key; });
    if (member == members.end()) return UnknownKey(prefix() + key, members);
    const std::string where = prefix() + key;
    if (!read.insert(member->key).second) {
      return FieldError(where, "comes twice");
    }
    if (absl::Status status = member->read(where, value); !status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

Member Text(const char* key, std::string& text) {
  return {key, [&text](const std::string& where, const RequestJson& value) {
            if (!value.is_string()) return Expected(where, value, "a string");
            text = value.get<std::string>();
            return absl::OkStatus();
          }};
}

absl::Status ReadParameter(const std::string& where, const RequestJson& value,
                           inference::InferParameter& parameter) {
  if (value.is_boolean()) {
    parameter.set_bool_param(value.get<bool>());
  } else if (value.is_number_unsigned() &&
             !std::in_range<int64_t>(value.get<uint64_t>())) {
    parameter.set_uint64_param(value.get<uint64_t>());
  } else if (value.is_number_integer()) {
    parameter.set_int64_param(value.get<int64_t>());
  } else if (value.is_number()) {
    parameter.set_double_param(value.get<double>());
  } else if (value.is_string()) {
    parameter.set_string_param(value.get<std::string>());
  } else {
    return Expected(where, value, "a boolean, a number or a string");
  }
  return absl::OkStatus();
}

// All of them, also behind one that is wrong; the error is the first one's.
absl::Status ReadParameterValues(const std::string& where,
                                 const RequestJson& value,
                                 InferParameters& parameters) {
  if (!value.is_object()) return Expected(where, value, "an object");
  absl::Status read;
  for (const auto& [key, one] : value.get_ref<const RequestJson::object_t&>()) {
    const std::string name =
        absl::StrCat(where, ".", key.substr(0, kMostKeyTold));
    read.Update(parameters.contains(key)
                    ? FieldError(name, "comes twice")
                    : ReadParameter(name, one, parameters[key]));
  }
  return read;
}

Member ParametersMember(InferParameters& parameters) {
  return {kParameters,
          [&parameters](const std::string& where, const RequestJson& value) {
            return ReadParameterValues(where, value, parameters);
          }};
}

Member ShapeMember(InputTensor& input) {
  return {"shape",
          [&input](const std::string& where, const RequestJson& value) {
            if (!value.is_array()) return Expected(where, value, "an array");
            for (const RequestJson& extent : value) {
              if (!extent.is_number_integer() ||
                  (extent.is_number_unsigned() &&
                   !std::in_range<int64_t>(extent.get<uint64_t>()))) {
                return Expected(where, extent, "integers");
              }
              input.add_shape(extent.get<int64_t>());
            }
            return absl::OkStatus();
          }};
}

// `read` is called with each object in the array.
Member Tensors(
    const char* key,
    const std::function<absl::Status(size_t index, const RequestJson& tensor)>&
        read) {
  return {key, [read](const std::string& where, const RequestJson& value) {
            if (!value.is_array()) return Expected(where, value, "an array");
            if (value.size() > kMostTensors) {
              return FieldError(where,
                                absl::StrCat("more than ", kMostTensors));
            }
            for (size_t i = 0; i < value.size(); ++i) {
              if (!value[i].is_object()) {
                return Expected(where, value[i], "objects");
              }
              absl::Status status = read(i, value[i]);
              if (!status.ok()) return status;
            }
            return absl::OkStatus();
          }};
}

// "query", or "inputs[0]" without a name.
std::string NameOf(const std::string& name, const char* list, size_t index) {
  return name.empty() ? absl::StrCat(list, "[", index, "]")
                      : name.substr(0, kMostKeyTold);
}

// Where the elements are, once all else of the input is read.
absl::Status FindElements(const std::string& name, const RequestJson& json,
                          const InputTensor& input, InferJson::Input& place) {
  place.in_region = NamesRegion(input.parameters());
  if (json.contains(kParameters) &&
      json.at(kParameters).contains("binary_data_size")) {
    const RequestJson& bytes = json.at(kParameters).at("binary_data_size");
    if (!bytes.is_number_unsigned() ||
        !std::in_range<int64_t>(bytes.get<uint64_t>())) {
      return Expected(absl::StrCat(name, ".binary_data_size"), bytes,
                      "an integer of at least 0");
    }
    place.binary_bytes = bytes.get<int64_t>();
  }
  const int places = (place.data ? 1 : 0) + (place.binary_bytes ? 1 : 0) +
                     (place.in_region ? 1 : 0);
  if (places == 1) return absl::OkStatus();
  return FieldError(name, places == 0
                              ? "has no elements (expected data, "
                                "binary_data_size or shared_memory_region)"
                              : "has its elements in two places (expected one "
                                "of data, binary_data_size and "
                                "shared_memory_region)");
}

absl::Status ReadInput(size_t index, const RequestJson& json,
                       const InferJsonParts& parts, InferJson& result) {
  InputTensor& input = *result.fields.add_inputs();
  InferJson::Input& place = result.inputs.emplace_back();
  const auto name = [&] { return NameOf(input.name(), "inputs", index); };
  const Member data = {
      "data", [&](const std::string& where, const RequestJson& value) {
        const auto cut = absl::c_find_if(parts.data, [index](const auto& one) {
          return one.input == index;
        });
        if (!value.is_array() || cut == parts.data.end()) {
          return Expected(where, value, "an array");
        }
        place.data = cut->text;
        return absl::OkStatus();
      }};
  absl::Status status = ReadMembers(
      json, [&] { return name() + "."; },
      {Text("name", *input.mutable_name()),
       Text("datatype", *input.mutable_datatype()), ShapeMember(input),
       ParametersMember(*input.mutable_parameters()), data});
  if (status.ok()) status = FindElements(name(), json, input, place);
  if (!status.ok()) return status;
  for (const char* key : {"name", "datatype", "shape"}) {
    if (!json.contains(key)) {
      return FieldError(absl::StrCat(name(), ".", key), "missing");
    }
  }
  return absl::OkStatus();
}

absl::Status ReadOutput(size_t index, const RequestJson& json,
                        InferJson& result) {
  RequestedOutput& output = *result.fields.add_outputs();
  return ReadMembers(
      json, [&] { return NameOf(output.name(), "outputs", index) + "."; },
      {Text("name", *output.mutable_name()),
       ParametersMember(*output.mutable_parameters())});
}

absl::StatusOr<RequestJson> ParseHead(const InferJsonParts& parts) {
  try {
    return RequestJson::parse(parts.head);
  } catch (const RequestJson::parse_error& error) {
    // After "[json.exception.parse_error.101] parse error at line 1, column 1".
    const absl::string_view what = error.what();
    return FieldError(
        "body", absl::StrCat("no JSON at byte ", parts.PositionOf(error.byte),
                             ": ", what.substr(what.find(": ") + 2)));
  } catch (const RequestJson::exception& error) {  // a number that no double is
    const absl::string_view what = error.what();
    return FieldError(
        "body", absl::StrCat("no JSON: ", what.substr(what.find("] ") + 2)));
  }
}

}  // namespace

absl::Status ReadInferJson(absl::string_view text, HoldBytes hold,
                           InferJson& json) {
  const absl::StatusOr<InferJsonParts> parts = CutData(text, hold);
  if (!parts.ok()) return parts.status();
  const absl::StatusOr<RequestJson> head = ParseHead(*parts);
  if (!head.ok()) return head.status();
  if (!head->is_object()) return Expected("body", *head, "an object");
  // First: what is wrong before them must not hide them.
  json.read = true;
  absl::Status parameters;
  if (head->contains(kParameters)) {
    parameters = ReadParameterValues(kParameters, head->at(kParameters),
                                     *json.fields.mutable_parameters());
  }
  return ReadMembers(
      *head, [] { return std::string(); },
      {Text("id", *json.fields.mutable_id()),
       // The kserve SDK repeats what the path says.
       Text("model_name", *json.fields.mutable_model_name()),
       {kParameters, [&](const auto&, const auto&) { return parameters; }},
       Tensors("inputs",
               [&](size_t index, const RequestJson& input) {
                 return ReadInput(index, input, *parts, json);
               }),
       Tensors("outputs", [&](size_t index, const RequestJson& output) {
         return ReadOutput(index, output, json);
       })});
}

}  // namespace attention::server
