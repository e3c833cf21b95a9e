#include "server/request/scoring_names.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace attention::server {

absl::Span<const ScoringName> ScoringNames() {
  static const auto* const names = new std::vector<ScoringName>{
      {"scaled_dot_product", "scaled dot product",
       "scaled_dot_product_attention", ScaledDotProduct{}},
      {"additive", "additive", "additive_attention", Additive{}},
      {"gaussian", "Gaussian", "gaussian_attention", Gaussian{}},
      {"bilinear", "bilinear", "bilinear_attention", Bilinear{}},
  };
  return *names;
}

namespace {

template <typename Word>
std::vector<absl::string_view> WordsOf(ScoringSet set, Word word) {
  std::vector<absl::string_view> words;
  for (const ScoringName& name : ScoringNames()) {
    if (Contains(set, name.scoring)) words.push_back(name.*word);
  }
  return words;
}

}  // namespace

std::string WhichHave(ScoringSet set) {
  const auto words = WordsOf(set, &ScoringName::words);
  return absl::StrCat(absl::StrJoin(words, " and "),
                      words.size() == 1 ? " has" : " have");
}

std::string NamesOf(ScoringSet set) {
  if (set == kAnyScoring) return "all";
  return absl::StrJoin(WordsOf(set, &ScoringName::name), ", ");
}

}  // namespace attention::server
