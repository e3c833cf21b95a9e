#ifndef ATTENTION_CORE_CPU_SCORING_ROW_WIDENER_H_
#define ATTENTION_CORE_CPU_SCORING_ROW_WIDENER_H_

#include <cstdint>

#include "core/cpu/block_rows.h"
#include "core/cpu/kernels/kernels.h"
#include "core/cpu/row_source.h"
#include "core/cpu/scratch.h"
#include "core/cpu/tile_rows.h"
#include "core/validate.h"

namespace attention::cpu {

/// Queries of a block, or keys of a tile, as rows of floats, some columns at a
/// time: where they lie if they are such rows, else widened into scratch, where
/// they are good until the next call.
class RowWidener {
 public:
  /// For at most `rows` rows and `columns` columns at a time.
  RowWidener(const ValidatedProblem& problem, const Kernels& kernels,
             int64_t rows, int64_t columns, Scratch& scratch);

  FloatRows Queries(const BlockRows& rows, int64_t first, int64_t columns);
  /// Keys row ... row + count - 1 of a tile, columns first ... of them.
  FloatRows Keys(const TileRows& keys, int64_t row, int64_t count,
                 int64_t first, int64_t columns);

 private:
  const ValidatedProblem& problem_;
  const Kernels& kernels_;
  int64_t stride_;
  float* rows_;
};

/// Calls visit(queries, first row, count) for the runs of a block's rows that
/// are of one head.
template <typename Visit>
void ForEachHead(const ValidatedProblem& problem, const BlockRows& rows,
                 const Visit& visit) {
  for (int64_t r = 0; r < rows.count();) {
    const int64_t query = rows.QueryOf(r);
    const int64_t count =
        std::min(rows.count() - r, problem.query_length - query);
    visit(RowsOf(problem.query, rows.batch(), rows.HeadOf(r), query), r, count);
    r += count;
  }
}

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_SCORING_ROW_WIDENER_H_
