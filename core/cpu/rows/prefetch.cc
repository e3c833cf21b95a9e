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

// No more than there is room for: of keys in very small pages, some.
void Add(const PrefetchRange& range, Prefetch& prefetch) {
  if (range.bytes <= 0 || prefetch.count == Prefetch::kRanges) return;
  prefetch.lines += CeilDivide(range.bytes, kLine);
  prefetch.ranges[prefetch.count] = range;
  prefetch.ends[prefetch.count++] = prefetch.lines;
}

void AddTile(const ValidatedProblem& problem, const BlockRows& rows,
             const KeyTile& tile, Prefetch& prefetch) {
  const auto add = [&prefetch](const TileRows& all, int64_t width) {
    all.ForEachPiece([&](const RowSource& some, int64_t /*at*/, int64_t count) {
      Add(Stretch(some, count, width), prefetch);
    });
  };
  add(tile.Keys(problem, rows), problem.key_width);
  add(tile.Values(problem, rows), problem.value_width);
}

void AddBlock(const ValidatedProblem& problem, const Plan& plan,
              const BlockRows& rows, bool from_first_key, Prefetch& prefetch) {
  if (rows.begin_group() && from_first_key) {
    AddTile(problem, rows, {0, std::min(plan.key_tile, problem.key_length)},
            prefetch);
  }
  const int64_t query = rows.QueryOf(0);
  Add(Stretch(RowsOf(problem.query, rows.batch(), rows.HeadOf(0), query),
              std::min(plan.row_block, problem.query_length - query),
              problem.query_width),
      prefetch);
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
  prefetch.count = prefetch.lines = 0;
  const int64_t next = tile.first_key + tile.count;
  if (next < keys.end) {
    return AddTile(problem, rows,
                   {next, std::min(plan.key_tile, keys.end - next)}, prefetch);
  }
  Add(Results(problem, places, rows), prefetch);
  if (rows.index() + 1 < plan.blocks()) {
    AddBlock(problem, plan, BlockRows(problem, plan, rows.index() + 1),
             keys.begin == 0, prefetch);
  }
}

}  // namespace attention::cpu
