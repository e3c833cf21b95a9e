#include "core/cpu/rows/prefetch.h"

#include <algorithm>

#include "core/cpu/row_source.h"

namespace attention::cpu {
namespace {

// Rows that lie close together, as one stretch of memory.
PrefetchRange Stretch(const RowSource& rows, int64_t count, int64_t width) {
  const int64_t row_bytes = width * SizeOf(rows.type);
  const bool dense =
      rows.row_stride >= row_bytes && rows.row_stride <= 2 * row_bytes;
  return {rows.data,
          dense && count > 0 ? (count - 1) * rows.row_stride + row_bytes : 0};
}

// Of a tile in several pieces, the first one.
void SetTile(const ValidatedProblem& problem, const BlockRows& rows,
             const KeyTile& tile, PrefetchRange* ranges) {
  const TileRows::Piece keys = tile.Keys(problem, rows).From(0);
  const TileRows::Piece values = tile.Values(problem, rows).From(0);
  ranges[0] = Stretch(keys.rows, keys.count, problem.key_width);
  ranges[1] = Stretch(values.rows, values.count, problem.value_width);
}

void SetBlock(const ValidatedProblem& problem, const Plan& plan,
              const BlockRows& rows, bool from_first_key,
              PrefetchRange* ranges) {
  if (rows.begin_group() && from_first_key) {
    SetTile(problem, rows, {0, std::min(plan.key_tile, problem.key_length)},
            ranges);
  }
  const int64_t query = rows.QueryOf(0);
  ranges[3] =
      Stretch(RowsOf(problem.query, rows.batch(), rows.HeadOf(0), query),
              std::min(plan.row_block, problem.query_length - query),
              problem.query_width);
}

// Where the rows' output goes, unless they lie apart.
PrefetchRange Results(const ValidatedProblem& problem,
                      const ResultPlaces& places, const BlockRows& rows) {
  const int64_t bytes = problem.value_width * ByteSize(problem.query.type);
  const bool dense = places.output_row_stride() == bytes;
  return {reinterpret_cast<const unsigned char*>(
              places.Output(rows.batch(), rows.HeadOf(0), rows.QueryOf(0))),
          dense ? rows.count() * bytes : 0};
}

}  // namespace

void SetPrefetch(const ValidatedProblem& problem, const ResultPlaces& places,
                 const Plan& plan, const BlockRows& rows, const KeyRange& keys,
                 const KeyTile& tile, Prefetch& prefetch) {
  prefetch = {};
  const int64_t next = tile.first_key + tile.count;
  if (next < keys.end) {
    SetTile(problem, rows, {next, std::min(plan.key_tile, keys.end - next)},
            prefetch.ranges);
  } else {
    prefetch.ranges[2] = Results(problem, places, rows);
    if (rows.index() + 1 < plan.blocks()) {
      SetBlock(problem, plan, BlockRows(problem, plan, rows.index() + 1),
               keys.begin == 0, prefetch.ranges);
    }
  }
  for (const PrefetchRange& range : prefetch.ranges) {
    prefetch.lines += CeilDivide(range.bytes, kLine);
  }
}

}  // namespace attention::cpu
