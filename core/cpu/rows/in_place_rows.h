#ifndef ATTENTION_CORE_CPU_ROWS_IN_PLACE_ROWS_H_
#define ATTENTION_CORE_CPU_ROWS_IN_PLACE_ROWS_H_

#include <cstdint>
#include <optional>

#include "core/cpu/block_rows.h"
#include "core/cpu/kernels/kernels.h"
#include "core/cpu/plan.h"
#include "core/cpu/rows/key_tile.h"
#include "core/cpu/scratch.h"
#include "core/validate.h"

namespace attention::cpu {

/// Where InPlaceRows puts what the kernels read of a tile. Passes that take
/// turns share it: each tile has it anew.
struct InPlaceTables {
  /// Takes its memory from `scratch`; none for a plan that does not decode.
  InPlaceTables(const ValidatedProblem& problem, const Plan& plan,
                const Kernels& kernels, Scratch& scratch);

  /// Whether the kernels can read a tile's rows where they lie.
  struct Readable {
    bool keys;
    bool values;
  };

  int64_t room = 0;  // for scales
  /// Where rows begin: of a tile's keys and of its values, each with those of
  /// the next tile.
  const unsigned char** keys = nullptr;
  const unsigned char** values = nullptr;
  /// Whose the next tile is, and which key it begins with; from where on its
  /// rows are in both, and whether they can be read. None: no key/value head.
  int64_t ahead_kv_head = -1;
  int64_t ahead_key = 0;
  int64_t ahead = 0;
  Readable ahead_readable = {};
  float* key_scales = nullptr;  // of a tile's keys; null where they have none
  float* value_scales = nullptr;
  float* widened_keys = nullptr;
  float* widened_values = nullptr;
  int64_t key_stride = 0;
  int64_t value_stride = 0;
};

/// Keys and values of a tile for a plan that decodes: each row where it lies,
/// with its scale if it has one, or, where the kernels cannot read it so,
/// copied, or widened, into scratch.
class InPlaceRows {
 public:
  /// For the rows of one pass. The others outlive it.
  InPlaceRows(const ValidatedProblem& problem, const Plan& plan,
              const Kernels& kernels, const BlockRows& rows,
              InPlaceTables& tables);

  /// Fills in the rows of args.in_place, their type and scales, given queries.
  /// FP32 in place of another type: they were widened. `next` is what the
  /// tables' next call is likely to be for, and is asked for meanwhile.
  void SetTile(const KeyTile& tile, const TileOfRows& next, TileArgs& args);

 private:
  using Readable = InPlaceTables::Readable;

  // Sets where rows begin. False where the kernels cannot read some there.
  bool PointToReadable(const TileRows& rows, int64_t width,
                       const unsigned char** table) const;
  static void Copy(const TileRows& rows, int64_t width, float* copy,
                   const unsigned char** table);
  bool CopyScales(const TileRows& rows, float* to) const;
  bool ScalesFit(const InPlaceOperands& operands, const TileRows& keys,
                 const TileRows& values);
  bool SumsFit(const InPlaceOperands& operands);
  // False where they have to be widened.
  bool SetRows(const KeyTile& tile, const TileRows& keys,
               const TileRows& values) const;
  void SetRowsAhead(int64_t count, const TileOfRows& next);
  // Of the next tile: `count` rows, those that it lacks behind the last key.
  bool PointAhead(const TileRows& next, const TileRows& last, int64_t count,
                  int64_t width, const unsigned char** table) const;
  void PrefetchScales(const TileRows& next) const;
  void Widen(const TileRows& rows, int64_t width, float* to, int64_t stride,
             const unsigned char** table) const;

  const ValidatedProblem& problem_;
  const Kernels& kernels_;
  const BlockRows& rows_;
  const bool multiplies_bf16_;
  InPlaceTables& tables_;
  std::optional<bool> sums_fit_;  // of the pass's queries
};

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_ROWS_IN_PLACE_ROWS_H_
