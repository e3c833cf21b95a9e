#include "core/nearest_name.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"

namespace attention {

size_t EditDistance(absl::string_view a, absl::string_view b) {
  // One row of the table of distances: from a's beginning so far to each
  // beginning of b.
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

std::string NearestName(absl::string_view name,
                        const std::vector<std::string>& known) {
  const std::vector<absl::string_view> words =
      absl::StrSplit(name, absl::ByAnyChar("-_"), absl::SkipEmpty());
  // Whether a word is missing, before the number of edits: a short name is
  // few edits from any other one.
  std::pair least(true, std::numeric_limits<size_t>::max());
  std::string nearest;
  for (const std::string& candidate : known) {
    const bool misses = !absl::c_all_of(words, [&](absl::string_view word) {
      return absl::StrContains(candidate, word);
    });
    const std::pair distance(misses, EditDistance(name, candidate));
    if (distance >= least) continue;
    least = distance;
    nearest = candidate;
  }
  return nearest;
}

}  // namespace attention
