#ifndef ATTENTION_CORE_CPU_ROWS_KEY_TILE_H_
#define ATTENTION_CORE_CPU_ROWS_KEY_TILE_H_

#include <algorithm>
#include <cstdint>

#include "core/cpu/block_rows.h"
#include "core/cpu/tile_rows.h"
#include "core/validate.h"

namespace attention::cpu {

/// One tile of keys. Where it begins and ends follows from the rows that attend
/// it, not from the blocks that keys and values lie in: pages give the bits of
/// one piece.
struct KeyTile {
  int64_t first_key;  // among all keys
  int64_t count;

  /// As many keys, or as are left, behind these.
  KeyTile Next(const ValidatedProblem& problem) const {
    const int64_t end = first_key + count;
    return {end, std::min(count, problem.key_length - end)};
  }

  TileRows Keys(const ValidatedProblem& problem, const BlockRows& rows) const {
    return Rows(problem, rows, kKeys);
  }
  TileRows Values(const ValidatedProblem& problem,
                  const BlockRows& rows) const {
    return Rows(problem, rows, kValues);
  }

 private:
  TileRows Rows(const ValidatedProblem& problem, const BlockRows& rows,
                const BlockTensors& of) const {
    return {problem,
            of,
            rows.batch(),
            rows.kv_head(),
            {first_key, first_key + count}};
  }
};

/// A tile of the keys that some rows attend.
struct TileOfRows {
  KeyTile tile;
  const BlockRows& rows;

  TileRows Keys(const ValidatedProblem& problem) const {
    return tile.Keys(problem, rows);
  }
  TileRows Values(const ValidatedProblem& problem) const {
    return tile.Values(problem, rows);
  }
};

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_ROWS_KEY_TILE_H_
