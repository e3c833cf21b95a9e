#include "server/request/option_fields.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace attention::server {
namespace {

// One overload for each type that options have.
absl::StatusOr<double> Read(const OptionValue& value, double) {
  return NumberOf(value);
}
absl::StatusOr<int64_t> Read(const OptionValue& value, int64_t) {
  return IntegerOf(value);
}
absl::StatusOr<uint64_t> Read(const OptionValue& value, uint64_t) {
  return UnsignedOf(value);
}
absl::StatusOr<bool> Read(const OptionValue& value, bool) {
  return BoolOf(value);
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

// The same where `none` says that there is none: so a request can switch off
// what a parameter set has. FlashAttention's arguments use the same numbers.
template <typename T>
absl::Status SetUnless(T none, const OptionValue& value,
                       std::optional<T>& target) {
  absl::Status status = Set(value, target);
  if (status.ok() && *target == none) target.reset();
  return status;
}

constexpr absl::string_view kCausalWords[] = {"none", "top_left",
                                              "bottom_right"};
static_assert(static_cast<int>(Causal::kTopLeft) == 1 &&
              static_cast<int>(Causal::kBottomRight) == 2);
constexpr absl::string_view kScoresWords[] = {"none", "scaled", "capped",
                                              "masked"};
static_assert(static_cast<int>(ScoreStage::kScaled) == 0 &&
              static_cast<int>(ScoreStage::kMasked) == 2);
constexpr absl::string_view kEmptyRowsWords[] = {"zero", "uniform"};
static_assert(static_cast<int>(EmptyRows::kUniform) == 1);

// Words stand in the order of the enumeration.
template <typename Enum>
absl::Status SetWord(const OptionValue& value,
                     absl::Span<const absl::string_view> words, Enum& target) {
  const auto* text = std::get_if<std::string>(&value);
  for (size_t n = 0; n < words.size(); ++n) {
    if (text == nullptr || *text != words[n]) continue;
    target = static_cast<Enum>(n);
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      Describe(value), " (expected '", absl::StrJoin(words, "', '"), "')"));
}

using Value = const OptionValue&;
using Problem = AttentionProblem&;

absl::Status SetScale(Value value, Problem problem) {
  if (auto* bilinear = std::get_if<Bilinear>(&problem.scoring)) {
    return Set(value, bilinear->scale);
  }
  return Set(value, std::get<ScaledDotProduct>(problem.scoring).scale);
}

absl::Status SetSigma(Value value, Problem problem) {
  return Set(value, std::get<Gaussian>(problem.scoring).sigma);
}

// No more than there are keys, which whoever computes it looks at.
absl::Status SetTopK(Value value, Problem problem) {
  std::optional<int64_t>& top_k = problem.wanted.top_k;
  absl::Status status = Set(value, top_k);
  if (!status.ok() || *top_k >= 1) return status;
  return absl::InvalidArgumentError(
      absl::StrCat(*top_k, " (expected 1 to the number of keys)"));
}

// The first word is no stage.
absl::Status SetScores(Value value, Problem problem) {
  std::optional<ScoreStage>& scores = problem.wanted.scores;
  if (const auto* text = std::get_if<std::string>(&value);
      text != nullptr && *text == kScoresWords[0]) {
    scores.reset();
    return absl::OkStatus();
  }
  int word = 0;
  absl::Status status = SetWord(value, kScoresWords, word);
  if (status.ok()) scores = static_cast<ScoreStage>(word - 1);
  return status;
}

constexpr OptionField kOptions[] = {
    {"scale", OptionType::kNumber, "-2e38 to 2e38", "1/sqrt(Dq); bilinear: 1",
     "factor of the scores; 0 is legal", SetScale,
     ScoringsOf<ScaledDotProduct, Bilinear>()},
    {"sigma", OptionType::kNumber, ">= 1e-19, finite FP32", "1",
     "width of the kernel", SetSigma, ScoringsOf<Gaussian>()},
    {"softcap", OptionType::kNumber, "> 0, finite FP32; 0 is off", "off",
     "caps scores: c * tanh(score / c), before bias and masks",
     [](Value v, Problem p) { return SetUnless(0.0, v, p.softcap); }},
    {"causal", OptionType::kWord, "", "none",
     "keys up to the row's own position take part: `top_left` places rows as "
     "PyTorch and JAX do, `bottom_right` as FlashAttention and MLX",
     [](Value v, Problem p) {
       return SetWord(v, kCausalWords, p.masks.causal);
     },
     kAnyScoring, kCausalWords},
    {"query_offset", OptionType::kInteger, "-2^62 to 2^62", "0",
     "position of the first query in a longer sequence; not with "
     "`bottom_right`",
     [](Value v, Problem p) { return Set(v, p.masks.query_offset); }},
    {"key_offset", OptionType::kInteger, "-2^62 to 2^62", "0",
     "position of the first key; not with `bottom_right`",
     [](Value v, Problem p) { return Set(v, p.masks.key_offset); }},
    {"window_left", OptionType::kInteger, ">= 0; -1 is off", "unbounded",
     "how many positions before its own a row sees",
     [](Value v, Problem p) {
       return SetUnless(int64_t{-1}, v, p.masks.window.left);
     }},
    {"window_right", OptionType::kInteger, ">= 0; -1 is off", "unbounded",
     "how many positions after its own a row sees",
     [](Value v, Problem p) {
       return SetUnless(int64_t{-1}, v, p.masks.window.right);
     }},
    {"dropout_p", OptionType::kNumber, "0 <= p < 1", "0",
     "probability that a weight is dropped; only with `training`",
     [](Value v, Problem p) { return Set(v, p.dropout.p); }},
    {"seed", OptionType::kUnsigned, "any", "0",
     "which weights are dropped (Philox4x32-10 of seed and index)",
     [](Value v, Problem p) { return Set(v, p.dropout.seed); }},
    {"training", OptionType::kBool, "", "false", "whether dropout happens",
     [](Value v, Problem p) { return Set(v, p.dropout.training); }},
    {"weights_after_dropout", OptionType::kBool, "", "false",
     "return the weights after dropout instead of before it",
     [](Value v, Problem p) { return Set(v, p.wanted.weights_after_dropout); }},
    {"empty_rows", OptionType::kWord, "", "zero",
     "what a row without keys gives: zeros, or the mean of all values",
     [](Value v, Problem p) {
       return SetWord(v, kEmptyRowsWords, p.empty_rows);
     },
     kAnyScoring, kEmptyRowsWords},
    {"top_k", OptionType::kInteger, "1 to Lk", "none",
     "how many of each row's largest weights `top_k_indices` and "
     "`top_k_weights` have; more than Lk is an error where one of them is "
     "asked for",
     SetTopK},
    {"scores", OptionType::kWord, "", "none",
     "the stage of `scores`: `scaled` as the scoring function gives them, "
     "`capped` after the softcap, `masked` after bias and masks",
     SetScores, kAnyScoring, kScoresWords},
};

}  // namespace

absl::Span<const OptionField> OptionFields() { return kOptions; }

const OptionField* FindOption(absl::string_view name) {
  for (const OptionField& option : kOptions) {
    if (option.name == name) return &option;
  }
  return nullptr;
}

std::string OptionNames() {
  return absl::StrJoin(kOptions, ", ",
                       [](std::string* list, const OptionField& option) {
                         absl::StrAppend(list, option.name);
                       });
}

absl::Status SetOption(const OptionField& option, const OptionValue& value,
                       AttentionProblem& problem) {
  if (!Contains(option.scorings, problem.scoring)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "this scoring function has none (", WhichHave(option.scorings), ")"));
  }
  return option.set(value, problem);
}

}  // namespace attention::server
