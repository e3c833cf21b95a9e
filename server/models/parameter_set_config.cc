#include "server/models/parameter_set_config.h"

#include <set>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/base/json.h"
#include "server/request/option_fields.h"
#include "server/request/scoring_names.h"
#include "server/request/tensor_fields.h"

namespace attention::server {
namespace {

// Levels that the documented form has.
constexpr int kDeepest = 3;

// The member of that name, or an empty object.
absl::StatusOr<Json> Object(const Json& parent, const std::string& key,
                            absl::string_view path) {
  const auto found = parent.find(key);
  if (found == parent.end()) return Json::object();
  if (found->is_object()) return *found;
  return WrongValue(path, *found, "an object");
}

absl::StatusOr<WeightLayout> ToLayout(const std::string& path,
                                      const Json& value) {
  if (value == "input_by_output") return WeightLayout::kInputByOutput;
  if (value == "output_by_input") return WeightLayout::kOutputByInput;
  return WrongValue(path, value, "input_by_output or output_by_input");
}

absl::StatusOr<ParameterSource> ReadSource(const Json& parameters,
                                           const std::string& name) {
  const std::string path = absl::StrCat("parameters.", name);
  const absl::StatusOr<Json> object = Object(parameters, name, path);
  if (!object.ok()) return object.status();
  if (absl::Status status = CheckKeys(path, *object, {"tensor", "layout"});
      !status.ok()) {
    return status;
  }
  ParameterSource source{name, std::nullopt};
  if (const auto tensor = object->find("tensor"); tensor != object->end()) {
    if (!tensor->is_string()) {
      return WrongValue(path + ".tensor", *tensor, "a string");
    }
    source.tensor = tensor->get<std::string>();
  }
  if (const auto given = object->find("layout"); given != object->end()) {
    const absl::StatusOr<WeightLayout> layout =
        ToLayout(path + ".layout", *given);
    if (!layout.ok()) return layout.status();
    source.layout = *layout;
  }
  return source;
}

absl::StatusOr<Scoring> ReadScoring(const Json& json) {
  const auto found = json.find("scoring");
  if (found != json.end()) {
    for (const ScoringName& scoring : ScoringNames()) {
      if (*found == static_cast<std::string>(scoring.name)) {
        return scoring.scoring;
      }
    }
  }
  const auto append = [](std::string* out, const ScoringName& scoring) {
    absl::StrAppend(out, scoring.name);
  };
  const std::string names = absl::StrJoin(ScoringNames(), ", ", append);
  if (found != json.end()) return WrongValue("scoring", *found, names);
  return KeyError("scoring", absl::StrCat("missing (expected ", names, ")"));
}

// A value of the type that the option has: in a file there is no need for
// numbers in strings.
bool HasType(const Json& value, OptionType type) {
  switch (type) {
    case OptionType::kNumber:
      return value.is_number();
    case OptionType::kInteger:
    case OptionType::kUnsigned:
      return value.is_number_integer();
    case OptionType::kBool:
      return value.is_boolean();
    case OptionType::kWord:
      return value.is_string();  // SetOption() knows the words
  }
  return false;
}

std::string Expected(const OptionField& option) {
  switch (option.type) {
    case OptionType::kNumber:
      return "a number";
    case OptionType::kInteger:
      return "a whole number";
    case OptionType::kUnsigned:
      return "a whole number, 0 or more";
    case OptionType::kBool:
      return "true or false";
    case OptionType::kWord:
      return absl::StrCat("'", absl::StrJoin(option.words, "', '"), "'");
  }
  return "";
}

OptionValue ValueOf(const Json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_unsigned()) return value.get<uint64_t>();
  if (value.is_number_integer()) return value.get<int64_t>();
  return value.get<double>();
}

absl::Status ReadOptions(const Json& options, AttentionProblem& defaults) {
  for (const auto& [name, value] : options.items()) {
    const std::string path = absl::StrCat("options.", absl::CHexEscape(name));
    const OptionField* const option = FindOption(name);
    if (option == nullptr) {
      return KeyError(
          path, absl::StrCat("unknown key (expected ", OptionNames(), ")"));
    }
    if (!HasType(value, option->type)) {
      return WrongValue(path, value, Expected(*option));
    }
    const absl::Status status = SetOption(*option, ValueOf(value), defaults);
    if (!status.ok()) return KeyError(path, status.message());
  }
  return absl::OkStatus();
}

absl::Status ReadParameters(const Json& parameters,
                            ParameterSetConfig& config) {
  std::vector<std::string> known;
  for (const TensorField& tensor : TensorFields()) {
    if (!tensor.in_parameter_sets ||
        !Contains(tensor.scorings, config.defaults.scoring)) {
      continue;
    }
    const std::string& name = known.emplace_back(tensor.name);
    if (tensor.need == Need::kNobody && !parameters.contains(name)) continue;
    absl::StatusOr<ParameterSource> source = ReadSource(parameters, name);
    if (!source.ok()) return source.status();
    config.parameters.emplace(name, *std::move(source));
  }
  return CheckKeys("parameters", parameters, known);
}

absl::StatusOr<bool> ReadSequences(const Json& json) {
  const auto found = json.find("sequences");
  if (found == json.end()) return false;
  if (found->is_boolean()) return found->get<bool>();
  return WrongValue("sequences", *found, "true or false");
}

}  // namespace

absl::StatusOr<ParameterSetConfig> ParseParameterSetConfig(
    absl::string_view json) {
  const absl::StatusOr<Json> root = ParseStrictJson(json, kDeepest);
  if (!root.ok()) return root.status();
  if (absl::Status status = CheckKeys(
          "", *root, {"scoring", "parameters", "options", "sequences"});
      !status.ok()) {
    return status;
  }
  ParameterSetConfig config;
  absl::StatusOr<Scoring> scoring = ReadScoring(*root);
  if (!scoring.ok()) return scoring.status();
  config.defaults.scoring = *std::move(scoring);
  const absl::StatusOr<Json> parameters =
      Object(*root, "parameters", "parameters");
  if (!parameters.ok()) return parameters.status();
  absl::Status status = ReadParameters(*parameters, config);
  if (!status.ok()) return status;
  const absl::StatusOr<Json> options = Object(*root, "options", "options");
  if (!options.ok()) return options.status();
  status = ReadOptions(*options, config.defaults);
  if (!status.ok()) return status;
  const absl::StatusOr<bool> sequences = ReadSequences(*root);
  if (!sequences.ok()) return sequences.status();
  config.sequences = *sequences;
  return config;
}

}  // namespace attention::server
