#include "core/cpu/subnormals.h"

#include <limits>

#include "core/cpu/prepare.h"

namespace attention::cpu {

bool TinyValues::In(int64_t batch, int64_t kv_head) {
  const std::pair<int64_t, int64_t> key = {batch, kv_head};
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = known_.find(key); found != known_.end()) {
      return found->second;
    }
  }
  const bool any = Search(batch, kv_head);
  const std::lock_guard lock(mutex_);
  return known_[key] = any;
}

bool TinyValues::Search(int64_t batch, int64_t kv_head) const {
  // The smallest FP16 number is larger.
  if (problem_.query.type == DataType::kFloat16) return false;
  for (const ValidatedProblem::Block& block : problem_.key_value) {
    for (int64_t k = 0; k < block.key_count; ++k) {
      if (problem_.value_width > 0 &&
          kernels_.any_beyond(RowsOf(block.value, batch, kv_head, k),
                              problem_.value_width, kTinyValue,
                              std::numeric_limits<float>::infinity())) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace attention::cpu
