#include "core/nearest_name.h"

#include <algorithm>
#include <limits>
#include <numeric>

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
  size_t least = std::numeric_limits<size_t>::max();
  std::string nearest;
  for (const std::string& candidate : known) {
    const size_t distance = EditDistance(name, candidate);
    if (distance >= least) continue;
    least = distance;
    nearest = candidate;
  }
  return nearest;
}

}  // namespace attention
