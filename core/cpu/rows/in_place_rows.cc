#include "core/cpu/rows/in_place_rows.h"

#include <algorithm>

namespace attention::cpu {
namespace {

void PointTo(const RowSource& rows, int64_t count, const unsigned char** to) {
  for (int64_t i = 0; i < count; ++i) to[i] = rows.data + i * rows.row_stride;
}

void PointTo(const TileRows& rows, const unsigned char** to) {
  rows.ForEachPiece([to](const RowSource& some, int64_t at, int64_t count) {
    PointTo(some, count, to + at);
  });
}

}  // namespace

InPlaceRows::InPlaceRows(const ValidatedProblem& problem, const Plan& plan,
                         const Kernels& kernels, Scratch& scratch)
    : problem_(problem), kernels_(kernels) {
  if (!plan.decode) return;
  key_stride_ = RoundUp(problem.key_width, kernels.lanes);
  value_stride_ = plan.padded_value_width;
  keys_ = scratch.Take<const unsigned char*>(2 * plan.key_tile);
  values_ = scratch.Take<const unsigned char*>(plan.key_tile);
  widened_keys_ = scratch.Take<float>(plan.key_tile * key_stride_);
  widened_values_ = scratch.Take<float>(plan.key_tile * value_stride_);
}

bool InPlaceRows::AreReadable(const TileRows& rows, int64_t width) const {
  bool readable = true;
  rows.ForEachPiece([&](const RowSource& some, int64_t /*at*/, int64_t /*n*/) {
    const int64_t size = SizeOf(some.type);
    readable = readable && some.scales == nullptr &&
               (some.type != Element::kFloat16 || kernels_.reads_half) &&
               (some.column_stride == size || width <= 1) &&
               some.row_stride % size == 0 &&
               reinterpret_cast<intptr_t>(some.data) % size == 0;
  });
  return readable;
}

void InPlaceRows::Widen(const TileRows& rows, int64_t width, float* to,
                        int64_t stride, const unsigned char** table) const {
  rows.ForEachPiece([&](const RowSource& some, int64_t at, int64_t count) {
    kernels_.widen_rows(some, count, width, to + at * stride, stride, stride);
  });
  PointTo({.data = reinterpret_cast<const unsigned char*>(to),
           .row_stride = stride * static_cast<int64_t>(sizeof(float)),
           .column_stride = sizeof(float),
           .type = Element::kFloat32},
          rows.count(), table);
}

// The kernels ask for a key of the next tile with each of this one. Beyond the
// last key they ask for what follows it in memory: most likely the next head's.
void InPlaceRows::SetRowsAhead(const BlockRows& rows, const KeyTile& tile) {
  const int64_t next = tile.first_key + tile.count;
  const int64_t ahead = std::min(tile.count, problem_.key_length - next);
  const unsigned char** const to = keys_ + tile.count;
  PointTo(KeyTile{next, ahead}.Keys(problem_, rows), to);
  if (ahead == tile.count) return;
  const TileRows::Piece last =
      KeyTile{problem_.key_length - 1, 1}.Keys(problem_, rows).From(0);
  RowSource behind = last.rows;
  behind.data += behind.row_stride;
  PointTo(behind, tile.count - ahead, to + ahead);
}

void InPlaceRows::SetTile(const BlockRows& rows, const KeyTile& tile,
                          TileArgs& args) {
  const TileRows keys = tile.Keys(problem_, rows);
  const TileRows values = tile.Values(problem_, rows);
  InPlaceOperands& operands = args.in_place;
  operands.keys = keys_;
  operands.values = values_;
  operands.value_width = problem_.value_width;
  if (AreReadable(keys, problem_.key_width) &&
      AreReadable(values, problem_.value_width)) {
    operands.type = keys.From(0).rows.type;
    PointTo(keys, keys_);
    PointTo(values, values_);
    return SetRowsAhead(rows, tile);
  }
  operands.type = Element::kFloat32;
  Widen(keys, problem_.key_width, widened_keys_, key_stride_, keys_);
  Widen(values, problem_.value_width, widened_values_, value_stride_, values_);
  std::copy_n(keys_, tile.count, keys_ + tile.count);  // nothing to ask for
}

}  // namespace attention::cpu
