#include "server/wire/infer_parameters.h"

#include <map>
#include <utility>
#include <variant>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace attention::server {
namespace {

using inference::InferParameter;

// Takes the value of the statement's StatusOr, or returns its status.
template <typename Value, typename Target>
absl::Status Take(absl::StatusOr<Value> value, Target& target) {
  if (!value.ok()) return value.status();
  target = *std::move(value);
  return absl::OkStatus();
}

absl::Status HasNone(absl::string_view name, absl::string_view those_with) {
  return absl::InvalidArgumentError(absl::StrCat(
      name, ": this model's scoring function has none (", those_with, ")"));
}

absl::Status SetScale(const InferParameter& value, AttentionProblem& problem) {
  if (auto* dot = std::get_if<ScaledDotProduct>(&problem.scoring)) {
    return Take(NumberOf("scale", value), dot->scale);
  }
  if (auto* bilinear = std::get_if<Bilinear>(&problem.scoring)) {
    return Take(NumberOf("scale", value), bilinear->scale);
  }
  return HasNone("scale", "scaled dot product and bilinear scoring have");
}

absl::Status SetSigma(const InferParameter& value, AttentionProblem& problem) {
  auto* gaussian = std::get_if<Gaussian>(&problem.scoring);
  if (gaussian == nullptr) return HasNone("sigma", "Gaussian scoring has");
  return Take(NumberOf("sigma", value), gaussian->sigma);
}

// One of a few words.
template <typename Enum>
absl::Status SetWord(absl::string_view name, const InferParameter& value,
                     const std::map<std::string, Enum>& words, Enum& target) {
  absl::StatusOr<std::string> text = TextOf(name, value);
  if (text.ok()) {
    if (const auto found = words.find(*text); found != words.end()) {
      target = found->second;
      return absl::OkStatus();
    }
    text = absl::StrCat("'", text->substr(0, 64), "'");
  } else {
    text = std::string("not a string");
  }
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": ", *text, " (expected ",
                   absl::StrJoin(words, ", ",
                                 [](std::string* out, const auto& word) {
                                   absl::StrAppend(out, "'", word.first, "'");
                                 }),
                   ")"));
}

using Setter = absl::Status (*)(const InferParameter&, AttentionProblem&);

const std::map<std::string, Setter>& Setters() {
  using V = const InferParameter&;
  using P = AttentionProblem&;
  static const auto* const setters = new std::map<std::string, Setter>{
      {"scale", SetScale},
      {"sigma", SetSigma},
      {"softcap",
       [](V v, P p) { return Take(NumberOf("softcap", v), p.softcap); }},
      {"causal",
       [](V v, P p) {
         return SetWord<Causal>("causal", v,
                                {{"none", Causal::kNone},
                                 {"top_left", Causal::kTopLeft},
                                 {"bottom_right", Causal::kBottomRight}},
                                p.masks.causal);
       }},
      {"query_offset",
       [](V v, P p) {
         return Take(IntegerOf("query_offset", v), p.masks.query_offset);
       }},
      {"key_offset",
       [](V v, P p) {
         return Take(IntegerOf("key_offset", v), p.masks.key_offset);
       }},
      {"window_left",
       [](V v, P p) {
         return Take(IntegerOf("window_left", v), p.masks.window.left);
       }},
      {"window_right",
       [](V v, P p) {
         return Take(IntegerOf("window_right", v), p.masks.window.right);
       }},
      {"dropout_p",
       [](V v, P p) { return Take(NumberOf("dropout_p", v), p.dropout.p); }},
      {"seed",
       [](V v, P p) { return Take(UnsignedOf("seed", v), p.dropout.seed); }},
      {"training",
       [](V v, P p) {
         return Take(BoolOf("training", v), p.dropout.training);
       }},
      {"weights_after_dropout",
       [](V v, P p) {
         return Take(BoolOf("weights_after_dropout", v),
                     p.wanted.weights_after_dropout);
       }},
      {"empty_rows",
       [](V v, P p) {
         return SetWord<EmptyRows>(
             "empty_rows", v,
             {{"zero", EmptyRows::kZero}, {"uniform", EmptyRows::kUniform}},
             p.empty_rows);
       }},
  };
  return *setters;
}

// Keys that the protocol, its clients or its gateways use for themselves; none
// of them changes what is computed.
bool IsReserved(const std::string& key) {
  static constexpr absl::string_view kReserved[] = {
      "sequence_id",
      "sequence_start",
      "sequence_end",
      "priority",
      "timeout",
      "headers",
      "binary_data_output",
      "triton_enable_empty_final_response",
  };
  return absl::c_linear_search(kReserved, key);
}

}  // namespace

absl::Status ApplyParameters(const InferParameters& parameters,
                             AttentionProblem& problem) {
  for (const auto& [key, value] : parameters) {
    if (IsReserved(key)) continue;
    const auto setter = Setters().find(key);
    if (setter == Setters().end()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "parameter '", key.substr(0, 64), "' is unknown (known are ",
          absl::StrJoin(Setters(), ", ",
                        [](std::string* out, const auto& known) {
                          absl::StrAppend(out, known.first);
                        }),
          ")"));
    }
    if (absl::Status status = setter->second(value, problem); !status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<RegionReference>> RegionOf(
    absl::string_view field, const InferParameters& parameters) {
  RegionReference reference;
  bool sized = false;
  for (const auto& [key, value] : parameters) {
    const std::string name = absl::StrCat(field, ".", key.substr(0, 64));
    absl::Status status;
    if (key == "shared_memory_region") {
      status = Take(TextOf(name, value), reference.region);
    } else if (key == "shared_memory_byte_size") {
      status = Take(UnsignedOf(name, value), reference.byte_size);
      sized = true;
    } else if (key == "shared_memory_offset") {
      status = Take(UnsignedOf(name, value), reference.offset);
      sized = true;
    } else if (key != "binary_data_size" && key != "binary_data") {
      status = absl::InvalidArgumentError(
          absl::StrCat(name,
                       ": unknown (known are shared_memory_region, "
                       "shared_memory_byte_size, shared_memory_offset)"));
    }
    if (!status.ok()) return status;
  }
  if (!reference.region.empty()) return std::optional(std::move(reference));
  if (sized) {
    return absl::InvalidArgumentError(absl::StrCat(
        field, ".shared_memory_region: missing beside a size or an offset"));
  }
  return std::optional<RegionReference>();
}

}  // namespace attention::server
