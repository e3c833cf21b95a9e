#include "core/cpu/small_problem.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <variant>

#include "core/cpu/flush_subnormals.h"
#include "core/cpu/scoring/score_unit.h"
#include "core/cpu/tile_rows.h"
#include "core/result_places.h"

namespace attention::cpu {
namespace {

constexpr int64_t kFloat = sizeof(float);
// Larger ones are computed faster in tiles, or worth a second thread.
constexpr int64_t kMostRows = 256;
constexpr int64_t kMostMultiplications = int64_t{64} * 1024;

// Queries of a head that are brought into order at a time.
constexpr int64_t kRowsInOrder = 16;

using Rows = std::array<float, kSmallKeys * kSmallWidth>;
static_assert(kRowsInOrder <= kSmallKeys);

// Rows as floats: where they lie, or, of several blocks or in another layout,
// side by side in `copy`. Which of the two they are must not show in a result.
FloatRows Floats(const Kernels& kernels, const TileRows& rows, int64_t width,
                 Rows& copy) {
  const TileRows::Piece first = rows.From(0);
  const FloatRows in_place = InPlace(first.rows);
  if (first.count == rows.count() && in_place.data != nullptr) return in_place;
  rows.ForEachPiece([&](const RowSource& some, int64_t at, int64_t count) {
    kernels.widen_rows(some, count, width, copy.data() + at * width, width,
                       width);
  });
  return {copy.data(), width};
}

// All rows of a head, whose keys and values `args` has. False where a result is
// not finite.
bool AttendHead(const Kernels& kernels, const RowSource& query, int64_t rows,
                SmallArgs args) {
  const FloatRows in_place = InPlace(query);
  const int64_t most = in_place.data != nullptr ? rows : kRowsInOrder;
  Rows copy;
  for (int64_t first = 0; first < rows; first += most) {
    args.rows = std::min(most, rows - first);
    args.query = in_place.data + first * in_place.stride;
    args.query_stride = in_place.stride;
    if (in_place.data == nullptr) {
      RowSource some = query;
      some.data += first * query.row_stride;
      kernels.widen_rows(some, args.rows, args.width, copy.data(), args.width,
                         args.width);
      args.query = copy.data();
      args.query_stride = args.width;
    }
    if (!kernels.attend_small(args)) return false;
    args.output += args.rows * args.output_stride;
  }
  return true;
}

}  // namespace

bool IsSmallProblem(const ValidatedProblem& problem) {
  // Extents first: most problems are done with here. Their product fits, as
  // Validate() has seen.
  const int64_t rows =
      problem.batch * problem.query_heads * problem.query_length;
  if (problem.key_length > kSmallKeys || problem.key_length == 0 ||
      problem.key_width > kSmallWidth || problem.value_width > kSmallWidth ||
      rows > kMostRows ||
      rows * problem.key_length * (problem.key_width + problem.value_width) >
          kMostMultiplications) {
    return false;
  }
  return std::holds_alternative<ScaledDotProduct>(problem.scoring) &&
         problem.query.type == DataType::kFloat32 && !problem.softcap &&
         !HasRangeMask(problem) && !problem.attend_mask && !problem.bias &&
         !problem.alibi_slopes && !problem.sinks && problem.dropout.p == 0 &&
         !problem.wanted.weights && !problem.wanted.lse;
}

bool ComputeSmall(AttentionJob& job, const RunContext& context,
                  const Kernels& kernels) {
  const FlushSubnormals fast;
  const ValidatedProblem& problem = *job.problem;
  const ResultPlaces places(problem, job.outputs);
  SmallArgs args = {};
  args.keys = problem.key_length;
  args.width = problem.key_width;
  args.value_width = problem.value_width;
  args.output_stride = places.output_row_stride() / kFloat;
  args.factor = FactorOf(problem.scale * UnitOf(problem).one);
  Rows key_copy;
  Rows value_copy;
  for (int64_t batch = 0; batch < problem.batch; ++batch) {
    for (int64_t head = 0; head < problem.query_heads; ++head) {
      const int64_t kv_head = problem.KvHead(head);
      const KeyRange all = {0, problem.key_length};
      const FloatRows keys =
          Floats(kernels,
                 {problem, &ValidatedProblem::Block::key, batch, kv_head, all},
                 args.width, key_copy);
      const FloatRows values = Floats(
          kernels,
          {problem, &ValidatedProblem::Block::value, batch, kv_head, all},
          args.value_width, value_copy);
      args.key = keys.data;
      args.key_stride = keys.stride;
      args.value = values.data;
      args.value_stride = values.stride;
      args.output = reinterpret_cast<float*>(places.Output(batch, head, 0));
      if (!AttendHead(kernels, RowsOf(problem.query, batch, head, 0),
                      problem.query_length, args)) {
        return false;
      }
    }
  }
  job.tiles_total = job.tiles_computed = 1;
  job.status = absl::OkStatus();
  if (context.on_tile) context.on_tile();
  return true;
}

}  // namespace attention::cpu
