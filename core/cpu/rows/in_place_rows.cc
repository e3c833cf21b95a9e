#include "core/cpu/rows/in_place_rows.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "core/cpu/kernels/bf16/products.h"

namespace attention::cpu {

InPlaceTables::InPlaceTables(const ValidatedProblem& problem, const Plan& plan,
                             const Kernels& kernels, Scratch& scratch) {
  if (!plan.decode) return;
  key_stride = RoundUp(problem.key_width, kernels.lanes);
  value_stride = plan.padded_value_width;
  keys = scratch.Take<const unsigned char*>(2 * plan.key_tile);
  values = scratch.Take<const unsigned char*>(2 * plan.key_tile);
  if (IsScaledType(problem.key_type)) {
    room = RoundUp(plan.key_tile, std::max(2 * kernels.lanes, kBf16Panel));
    key_scales = scratch.Take<float>(room);
    value_scales = scratch.Take<float>(room);
  }
  widened_keys = scratch.Take<float>(plan.key_tile * key_stride);
  widened_values = scratch.Take<float>(plan.key_tile * value_stride);
}

InPlaceRows::InPlaceRows(const ValidatedProblem& problem, const Plan& plan,
                         const Kernels& kernels, const BlockRows& rows,
                         InPlaceTables& tables)
    : problem_(problem),
      kernels_(kernels),
      rows_(rows),
      multiplies_bf16_(plan.bf16_terms > 0),
      tables_(tables) {}

bool InPlaceRows::PointToReadable(const TileRows& rows, int64_t width,
                                  const unsigned char** table) const {
  bool readable = true;
  rows.ForEachPiece([&](const RowSource& some, int64_t at, int64_t count) {
    const int64_t size = SizeOf(some.type);  // a power of two
    const int64_t bits =
        reinterpret_cast<intptr_t>(some.data) | some.row_stride;
    readable =
        readable && (some.type != Element::kFloat16 || kernels_.reads_half) &&
        (some.column_stride == size || width <= 1) && (bits & (size - 1)) == 0;
    PointTo(some, count, table + at);
  });
  return readable;
}

void InPlaceRows::Copy(const TileRows& rows, int64_t width, float* copy,
                       const unsigned char** table) {
  auto* to = reinterpret_cast<unsigned char*>(copy);
  rows.ForEachPiece([&](const RowSource& some, int64_t at, int64_t count) {
    const auto size = static_cast<size_t>(SizeOf(some.type));
    for (int64_t n = at; n < at + count; ++n) {
      const unsigned char* from = some.data + (n - at) * some.row_stride;
      table[n] = to;
      for (int64_t i = 0; i < width; ++i, to += size) {
        std::memcpy(to, from + i * some.column_stride, size);
      }
    }
  });
}

// False where one is too large for the kernels.
bool InPlaceRows::CopyScales(const TileRows& rows, float* to) const {
  constexpr size_t kSize = sizeof(float);
  rows.ForEachPiece([to](const RowSource& some, int64_t at, int64_t count) {
    if (some.scale_stride == kSize) {
      std::memcpy(to + at, some.scales, static_cast<size_t>(count) * kSize);
      return;
    }
    for (int64_t n = 0; n < count; ++n) {
      std::memcpy(to + at + n, some.scales + n * some.scale_stride, kSize);
    }
  });
  std::fill(to + rows.count(), to + tables_.room, 0.0F);
  return kernels_.largest_magnitude(to, tables_.room) <= kMostScaleInPlace;
}

// False where products of queries with elements may pass FP32's range before
// they are multiplied by a scale.
bool InPlaceRows::SumsFit(const InPlaceOperands& operands) {
  if (!sums_fit_) {
    const float most = kernels_.largest_magnitude(
        operands.queries, rows_.count() * operands.query_stride);
    sums_fit_ = most <= 0x1p127F / (kMostScaledElement *
                                    static_cast<float>(problem_.key_width));
  }
  return *sums_fit_;
}

bool InPlaceRows::ScalesFit(const InPlaceOperands& operands,
                            const TileRows& keys, const TileRows& values) {
  return tables_.key_scales == nullptr ||
         (CopyScales(keys, tables_.key_scales) &&
          CopyScales(values, tables_.value_scales) && SumsFit(operands));
}

// Of elements with a scale, and of those that are multiplied as BF16, rows that
// cannot be read where they lie are copied as they are: widened, they would be
// rounded otherwise. Pages are many: each is looked at once.
bool InPlaceRows::SetRows(const KeyTile& tile, const TileRows& keys,
                          const TileRows& values) const {
  Readable readable = tables_.ahead_readable;
  if (rows_.kv_head() == tables_.ahead_kv_head &&
      tile.first_key == tables_.ahead_key) {
    std::copy_n(tables_.keys + tables_.ahead, tile.count, tables_.keys);
    std::copy_n(tables_.values + tables_.ahead, tile.count, tables_.values);
  } else {
    readable = {PointToReadable(keys, problem_.key_width, tables_.keys),
                PointToReadable(values, problem_.value_width, tables_.values)};
  }
  if (readable.keys && readable.values) return true;
  if (tables_.key_scales == nullptr && !multiplies_bf16_) return false;
  if (!readable.keys) {
    Copy(keys, problem_.key_width, tables_.widened_keys, tables_.keys);
  }
  if (!readable.values) {
    Copy(values, problem_.value_width, tables_.widened_values, tables_.values);
  }
  return true;
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

// The kernels ask for a row of the next tile with each of this one. Beyond the
// last key they ask for what follows it in memory: most likely the next head's.
bool InPlaceRows::PointAhead(const TileRows& next, const TileRows& last,
                             int64_t count, int64_t width,
                             const unsigned char** table) const {
  const bool readable = PointToReadable(next, width, table);
  if (next.count() < count) {
    RowSource behind = last.From(0).rows;
    behind.data += behind.row_stride;
    PointTo(behind, count - next.count(), table + next.count());
  }
  return readable;
}

void InPlaceRows::SetRowsAhead(int64_t count, const TileOfRows& next) {
  const TileOfRows last = {{problem_.key_length - 1, 1}, next.rows};
  tables_.ahead = count;
  tables_.ahead_kv_head = next.rows.kv_head();
  tables_.ahead_key = next.tile.first_key;
  tables_.ahead_readable = {
      PointAhead(next.Keys(problem_), last.Keys(problem_), count,
                 problem_.key_width, tables_.keys + count),
      PointAhead(next.Values(problem_), last.Values(problem_), count,
                 problem_.value_width, tables_.values + count)};
}

// The kernels do not read scales where they lie: their lines would be waited
// for when they are copied.
void InPlaceRows::PrefetchScales(const TileRows& next) const {
  if (tables_.key_scales == nullptr) return;
  next.ForEachPiece([](const RowSource& some, int64_t /*at*/, int64_t count) {
    const int64_t in_line =
        kLine / std::max<int64_t>(1, std::abs(some.scale_stride));
    for (int64_t n = 0; n < count; n += std::max<int64_t>(1, in_line)) {
      __builtin_prefetch(some.scales + n * some.scale_stride, 0, 2);
    }
  });
}

void InPlaceRows::SetTile(const KeyTile& tile, const TileOfRows& next,
                          TileArgs& args) {
  const TileRows keys = tile.Keys(problem_, rows_);
  const TileRows values = tile.Values(problem_, rows_);
  InPlaceOperands& operands = args.in_place;
  operands.keys = tables_.keys;
  operands.values = tables_.values;
  operands.value_width = problem_.value_width;
  operands.ahead = tile.count;
  operands.key_scales = tables_.key_scales;
  operands.value_scales = tables_.value_scales;
  if (ScalesFit(operands, keys, values) && SetRows(tile, keys, values)) {
    operands.type = keys.From(0).rows.type;
    PrefetchScales(next.Keys(problem_));
    PrefetchScales(next.Values(problem_));
    SetRowsAhead(tile.count, next);
    return;
  }
  operands.type = Element::kFloat32;
  Widen(keys, problem_.key_width, tables_.widened_keys, tables_.key_stride,
        tables_.keys);
  Widen(values, problem_.value_width, tables_.widened_values,
        tables_.value_stride, tables_.values);
  operands.ahead = 0;  // nothing to ask for
  tables_.ahead_kv_head = -1;
}

}  // namespace attention::cpu
