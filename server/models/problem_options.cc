#include "server/models/problem_options.h"

#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace attention::server {
namespace {

// One overload for each type that options have.
absl::StatusOr<double> Read(const OptionValue& value, double) {
  return value.Number();
}
absl::StatusOr<int64_t> Read(const OptionValue& value, int64_t) {
  return value.Integer();
}
absl::StatusOr<uint64_t> Read(const OptionValue& value, uint64_t) {
  return value.Unsigned();
}
absl::StatusOr<bool> Read(const OptionValue& value, bool) {
  return value.Bool();
}

template <typename T>
absl::Status Set(const OptionValue& value, T& target) {
  absl::StatusOr<T> read = Read(value, T());
  if (!read.ok()) return read.status();
  target = *read;
  return absl::OkStatus();
}

template <typename T>
absl::Status Set(const OptionValue& value, std::optional<T>& target) {
  return Set(value, target.emplace());
}

template <typename Enum>
using Words = std::vector<std::pair<const char*, Enum>>;

template <typename Enum>
absl::Status SetWord(const OptionValue& value, const Words<Enum>& words,
                     Enum& target) {
  const absl::StatusOr<std::string> text = value.Text();
  for (const auto& [word, meaning] : words) {
    if (!text.ok() || *text != word) continue;
    target = meaning;
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(value.Describe(), " (expected ",
                   absl::StrJoin(words, ", ",
                                 [](std::string* list, const auto& word) {
                                   absl::StrAppend(list, "'", word.first, "'");
                                 }),
                   ")"));
}

using Value = const OptionValue&;
using Problem = AttentionProblem&;

absl::Status SetScale(Value value, Problem problem) {
  if (auto* dot = std::get_if<ScaledDotProduct>(&problem.scoring)) {
    return Set(value, dot->scale);
  }
  if (auto* bilinear = std::get_if<Bilinear>(&problem.scoring)) {
    return Set(value, bilinear->scale);
  }
  return absl::InvalidArgumentError(
      "this scoring function has none (scaled dot product and bilinear have)");
}

absl::Status SetSigma(Value value, Problem problem) {
  if (auto* gaussian = std::get_if<Gaussian>(&problem.scoring)) {
    return Set(value, gaussian->sigma);
  }
  return absl::InvalidArgumentError(
      "this scoring function has none (Gaussian has)");
}

absl::Status SetCausal(Value value, Problem problem) {
  return SetWord<Causal>(value,
                         {{"none", Causal::kNone},
                          {"top_left", Causal::kTopLeft},
                          {"bottom_right", Causal::kBottomRight}},
                         problem.masks.causal);
}

absl::Status SetEmptyRows(Value value, Problem problem) {
  return SetWord<EmptyRows>(
      value, {{"zero", EmptyRows::kZero}, {"uniform", EmptyRows::kUniform}},
      problem.empty_rows);
}

struct Option {
  const char* name;
  absl::Status (*set)(Value value, Problem problem);
};

constexpr Option kOptions[] = {
    {"scale", SetScale},
    {"sigma", SetSigma},
    {"softcap", [](Value v, Problem p) { return Set(v, p.softcap); }},
    {"causal", SetCausal},
    {"query_offset",
     [](Value v, Problem p) { return Set(v, p.masks.query_offset); }},
    {"key_offset",
     [](Value v, Problem p) { return Set(v, p.masks.key_offset); }},
    {"window_left",
     [](Value v, Problem p) { return Set(v, p.masks.window.left); }},
    {"window_right",
     [](Value v, Problem p) { return Set(v, p.masks.window.right); }},
    {"dropout_p", [](Value v, Problem p) { return Set(v, p.dropout.p); }},
    {"seed", [](Value v, Problem p) { return Set(v, p.dropout.seed); }},
    {"training", [](Value v, Problem p) { return Set(v, p.dropout.training); }},
    {"weights_after_dropout",
     [](Value v, Problem p) { return Set(v, p.wanted.weights_after_dropout); }},
    {"empty_rows", SetEmptyRows},
};

const Option* Find(absl::string_view name) {
  for (const Option& option : kOptions) {
    if (option.name == name) return &option;
  }
  return nullptr;
}

}  // namespace

bool IsProblemOption(absl::string_view name) { return Find(name) != nullptr; }

std::string ProblemOptionNames() {
  return absl::StrJoin(kOptions, ", ",
                       [](std::string* list, const Option& option) {
                         absl::StrAppend(list, option.name);
                       });
}

absl::Status SetProblemOption(absl::string_view name, const OptionValue& value,
                              AttentionProblem& problem) {
  return Find(name)->set(value, problem);
}

}  // namespace attention::server
