#ifndef ATTENTION_CORE_CPU_TILE_OPERANDS_H_
#define ATTENTION_CORE_CPU_TILE_OPERANDS_H_

#include <cstdint>

#include "core/cpu/bf16_tiles.h"
#include "core/cpu/block_rows.h"
#include "core/cpu/job_run.h"
#include "core/cpu/kernels.h"
#include "core/cpu/key_tile.h"
#include "core/cpu/plan.h"
#include "core/cpu/prepare.h"
#include "core/cpu/scratch.h"
#include "core/validate.h"

namespace attention::cpu {

/// What the kernels read of a block of rows and a tile of keys: queries, keys
/// and values in the form that the plan's products take, masks, and what to
/// bring into the caches for the tile after it.
class TileOperands {
 public:
  /// Takes its memory from `scratch`. `run` and `rows` outlive it.
  TileOperands(JobRun& run, const BlockRows& rows, Scratch& scratch);

  /// Rows of output that the kernels write: products of BF16 write whole tiles
  /// of rows.
  static int64_t PaddedRows(const Plan& plan);

  /// Brings the queries and masks of the block; once. `keys`, which is not
  /// empty, spans those that any of the rows reads.
  void SetRows(KeyRange keys);

  /// A tile with keys packed for the products; values only where they are
  /// needed. True where the products are to be those of BF16.
  bool FillPackedTile(const KeyTile& tile, bool with_values);
  /// The same for a plan that decodes: keys and values as they lie, if the
  /// kernels can read them so.
  void FillRowTile(const KeyTile& tile);

  /// Filled in but for the rows' own state.
  TileArgs& args() { return args_; }

  Prepare& prepare() { return prepare_; }
  const Prepare& prepare() const { return prepare_; }

 private:
  void SetQueries();
  KeyRange CentreSpan() const;
  void SetCentre();
  void SetMasks();
  void PackQueries();
  void AddQueries();
  bool AddBf16Queries();
  template <typename Visit>
  bool ForEachHead(const Visit& visit);
  bool FillBf16Tile(const KeyTile& tile);
  void SetValues(const KeyTile& tile);
  bool IsReadable(const RowSource& rows, int64_t width) const;
  void BringNext(const KeyTile& tile);
  void BringRows(const BlockRows& rows);
  void BringTile(const ValidatedProblem::Block& block, int64_t batch,
                 int64_t kv_head, int64_t first);

  JobRun& run_;
  const ValidatedProblem& problem_;
  const Plan& plan_;
  const Kernels& kernels_;
  const BlockRows& rows_;
  Prepare prepare_;
  Bf16Tiles bf16_;

  KeyRange keys_;
  bool queries_packed_ = false;  // for products in FP32
  bool serves_bf16_ = false;     // the queries are there for those of BF16

  float* values_ = nullptr;
  const unsigned char** mask_rows_ = nullptr;
  const unsigned char** bias_rows_ = nullptr;
  TileArgs args_ = {};
};

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_TILE_OPERANDS_H_
