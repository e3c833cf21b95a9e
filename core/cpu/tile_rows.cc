#include "core/cpu/tile_rows.h"

#include <algorithm>
#include <iterator>

namespace attention::cpu {

const ValidatedProblem::Block& BlockOf(const ValidatedProblem& problem,
                                       int64_t key) {
  const auto& blocks = problem.key_value;
  if (blocks.size() == 1) return blocks.front();
  const auto next =
      std::upper_bound(blocks.begin(), blocks.end(), key,
                       [](int64_t k, const ValidatedProblem::Block& block) {
                         return k < block.first_key;
                       });
  return *std::prev(next);
}

}  // namespace attention::cpu
