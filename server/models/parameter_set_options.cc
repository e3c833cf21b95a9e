#include "server/models/parameter_set_options.h"

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace attention::server {
namespace {

using Json = nlohmann::json;

// What is wrong with a value, or nothing.
using Complaint = std::optional<std::string>;

Complaint Expected(const Json& value, absl::string_view expected) {
  return absl::StrCat(value.dump(), " (expected ", expected, ")");
}

// One overload per type that options have.
Complaint Read(const Json& value, double& out) {
  if (!value.is_number()) return Expected(value, "a number");
  out = value.get<double>();
  return std::nullopt;
}

Complaint Read(const Json& value, int64_t& out) {
  if (!value.is_number_integer() ||
      (value.is_number_unsigned() &&
       value.get<uint64_t>() > std::numeric_limits<int64_t>::max())) {
    return Expected(value, "a whole number of 63 bits");
  }
  out = value.get<int64_t>();
  return std::nullopt;
}

Complaint Read(const Json& value, uint64_t& out) {
  if (!value.is_number_unsigned()) {
    return Expected(value, "a whole number of 64 bits, 0 or more");
  }
  out = value.get<uint64_t>();
  return std::nullopt;
}

Complaint Read(const Json& value, bool& out) {
  if (!value.is_boolean()) return Expected(value, "true or false");
  out = value.get<bool>();
  return std::nullopt;
}

template <typename T>
Complaint Read(const Json& value, std::optional<T>& out) {
  return Read(value, out.emplace());
}

template <typename Enum>
using Names = std::vector<std::pair<const char*, Enum>>;

template <typename Enum>
Complaint ReadOneOf(const Json& value, const Names<Enum>& names, Enum& out) {
  for (const auto& [name, meaning] : names) {
    if (value == name) {
      out = meaning;
      return std::nullopt;
    }
  }
  return Expected(value, absl::StrJoin(names, ", ",
                                       [](std::string* list, const auto& name) {
                                         absl::StrAppend(list, name.first);
                                       }));
}

Complaint ReadScale(const Json& value, AttentionProblem& problem) {
  if (auto* dot = std::get_if<ScaledDotProduct>(&problem.scoring)) {
    return Read(value, dot->scale);
  }
  if (auto* bilinear = std::get_if<Bilinear>(&problem.scoring)) {
    return Read(value, bilinear->scale);
  }
  return "only scaled_dot_product and bilinear have one";
}

Complaint ReadSigma(const Json& value, AttentionProblem& problem) {
  if (auto* gaussian = std::get_if<Gaussian>(&problem.scoring)) {
    return Read(value, gaussian->sigma);
  }
  return "only gaussian has one";
}

Complaint ReadCausal(const Json& value, AttentionProblem& problem) {
  return ReadOneOf<Causal>(value,
                           {{"none", Causal::kNone},
                            {"top_left", Causal::kTopLeft},
                            {"bottom_right", Causal::kBottomRight}},
                           problem.masks.causal);
}

Complaint ReadEmptyRows(const Json& value, AttentionProblem& problem) {
  return ReadOneOf<EmptyRows>(
      value, {{"zero", EmptyRows::kZero}, {"uniform", EmptyRows::kUniform}},
      problem.empty_rows);
}

struct Option {
  const char* name;
  Complaint (*read)(const Json& value, AttentionProblem& problem);
};

using Problem = AttentionProblem;

constexpr Option kOptions[] = {
    {"scale", ReadScale},
    {"sigma", ReadSigma},
    {"softcap", [](const Json& v, Problem& p) { return Read(v, p.softcap); }},
    {"causal", ReadCausal},
    {"query_offset",
     [](const Json& v, Problem& p) { return Read(v, p.masks.query_offset); }},
    {"key_offset",
     [](const Json& v, Problem& p) { return Read(v, p.masks.key_offset); }},
    {"window_left",
     [](const Json& v, Problem& p) { return Read(v, p.masks.window.left); }},
    {"window_right",
     [](const Json& v, Problem& p) { return Read(v, p.masks.window.right); }},
    {"dropout_p",
     [](const Json& v, Problem& p) { return Read(v, p.dropout.p); }},
    {"seed", [](const Json& v, Problem& p) { return Read(v, p.dropout.seed); }},
    {"training",
     [](const Json& v, Problem& p) { return Read(v, p.dropout.training); }},
    {"weights_after_dropout",
     [](const Json& v, Problem& p) {
       return Read(v, p.wanted.weights_after_dropout);
     }},
    {"empty_rows", ReadEmptyRows},
};

const Option* Find(absl::string_view name) {
  for (const Option& option : kOptions) {
    if (option.name == name) return &option;
  }
  return nullptr;
}

}  // namespace

absl::Status ReadParameterSetOptions(const Json& options,
                                     AttentionProblem& defaults) {
  for (const auto& [name, value] : options.items()) {
    const Option* option = Find(name);
    if (option == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(
          "options.", absl::CHexEscape(name), ": unknown key (expected ",
          absl::StrJoin(kOptions, ", ",
                        [](std::string* list, const Option& known) {
                          absl::StrAppend(list, known.name);
                        }),
          ")"));
    }
    if (const Complaint complaint = option->read(value, defaults)) {
      return absl::InvalidArgumentError(
          absl::StrCat("options.", name, ": ", *complaint));
    }
  }
  return absl::OkStatus();
}

}  // namespace attention::server
