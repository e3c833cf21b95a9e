#ifndef ATTENTION_CORE_CPU_ROWS_STORED_ROWS_H_
#define ATTENTION_CORE_CPU_ROWS_STORED_ROWS_H_

#include <cstdint>
#include <vector>

#include "core/cpu/scoring/scoring.h"

namespace attention::cpu {

/// Rows of a block, each with the pass that it is still to be computed in, or
/// kAttend.
using Remaining = std::vector<Pass>;

/// The rows of a block whose results a pass stores: all in Pass::kAttend, in
/// others those that remain for it.
struct StoredRows {
  Pass pass;
  const Pass* remaining;  // per row; null in Pass::kAttend

  bool Has(int64_t row) const {
    return remaining == nullptr || remaining[row] == pass;
  }
};

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_ROWS_STORED_ROWS_H_
