#ifndef ATTENTION_SERVER_REQUEST_SCORING_NAMES_H_
#define ATTENTION_SERVER_REQUEST_SCORING_NAMES_H_

#include <cstdint>
#include <string>
#include <type_traits>
#include <variant>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/problem.h"

namespace attention::server {

/// What callers call a scoring function.
struct ScoringName {
  absl::string_view name;   // in attention.proto and config.json: "gaussian"
  absl::string_view words;  // in a sentence: "Gaussian"
  absl::string_view model;  // in the Open Inference Protocol
  Scoring scoring;          // with its defaults, without tensors
};

/// All of them, in the order of core's variant.
absl::Span<const ScoringName> ScoringNames();

/// A set of scoring functions: bit n is the variant's alternative n.
using ScoringSet = uint32_t;
inline constexpr ScoringSet kAnyScoring = ~ScoringSet{0};

template <typename Function, typename... Others>
constexpr uint32_t ScoringIndex(const std::variant<Others...>*) {
  const bool same[] = {std::is_same_v<Function, Others>...};
  uint32_t index = 0;
  while (!same[index]) ++index;
  return index;
}

/// Those of the listed alternatives: ScoringsOf<Gaussian, Bilinear>().
template <typename... Functions>
constexpr ScoringSet ScoringsOf() {
  constexpr const Scoring* kVariant = nullptr;
  return ((ScoringSet{1} << ScoringIndex<Functions>(kVariant)) | ...);
}

/// Whether the function that `scoring` holds is in the set.
inline bool Contains(ScoringSet set, const Scoring& scoring) {
  return (set >> scoring.index() & 1) != 0;
}

/// "scaled dot product and bilinear have", "Gaussian has".
std::string WhichHave(ScoringSet set);
/// "scaled_dot_product, bilinear"; "all" for kAnyScoring.
std::string NamesOf(ScoringSet set);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_REQUEST_SCORING_NAMES_H_
