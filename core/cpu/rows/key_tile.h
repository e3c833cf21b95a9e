#ifndef ATTENTION_CORE_CPU_ROWS_KEY_TILE_H_
#define ATTENTION_CORE_CPU_ROWS_KEY_TILE_H_

#include <cstdint>

#include "core/validate.h"

namespace attention::cpu {

/// One tile of keys, within one block of the problem.
struct KeyTile {
  const ValidatedProblem::Block* block;
  int64_t first;  // within that block
  int64_t count;
  int64_t first_key;  // among all keys
};

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_ROWS_KEY_TILE_H_
