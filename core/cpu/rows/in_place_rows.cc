#include "core/cpu/rows/in_place_rows.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "core/cpu/kernels/bf16/products.h"

namespace attention::cpu {

InPlaceRows::InPlaceRows(const ValidatedProblem& problem, const Plan& plan,
                         const Kernels& kernels, const BlockRows& rows,
                         Scratch& scratch)
    : problem_(problem),
      kernels_(kernels),
      rows_(rows),
      multiplies_bf16_(plan.bf16_terms > 0) {
  if (!plan.decode) return;
  key_stride_ = RoundUp(problem.key_width, kernels.lanes);
  value_stride_ = plan.padded_value_width;
  keys_ = scratch.Take<const unsigned char*>(2 * plan.key_tile);
  values_ = scratch.Take<const unsigned char*>(2 * plan.key_tile);
  if (IsScaledType(problem.key_type)) {
    room_ = RoundUp(plan.key_tile, std::max(2 * kernels.lanes, kBf16Panel));
    key_scales_ = scratch.Take<float>(room_);
    value_scales_ = scratch.Take<float>(room_);
  }
  widened_keys_ = scratch.Take<float>(plan.key_tile * key_stride_);
  widened_values_ = scratch.Take<float>(plan.key_tile * value_stride_);
}

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
  std::fill(to + rows.count(), to + room_, 0.0F);
  return kernels_.largest_magnitude(to, room_) <= kMostScaleInPlace;
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
  return key_scales_ == nullptr ||
         (CopyScales(keys, key_scales_) && CopyScales(values, value_scales_) &&
          SumsFit(operands));
}

// Of elements with a scale, and of those that are multiplied as BF16, rows that
// cannot be read where they lie are copied as they are: widened, they would be
// rounded otherwise. Pages are many: each is looked at once.
bool InPlaceRows::SetRows(const KeyTile& tile, const TileRows& keys,
                          const TileRows& values) const {
  Readable readable = ahead_readable_;
  if (tile.first_key == ahead_key_) {
    std::copy_n(keys_ + ahead_, tile.count, keys_);
    std::copy_n(values_ + ahead_, tile.count, values_);
  } else {
    readable = {PointToReadable(keys, problem_.key_width, keys_),
                PointToReadable(values, problem_.value_width, values_)};
  }
  if (readable.keys && readable.values) return true;
  if (key_scales_ == nullptr && !multiplies_bf16_) return false;
  if (!readable.keys) Copy(keys, problem_.key_width, widened_keys_, keys_);
  if (!readable.values) {
    Copy(values, problem_.value_width, widened_values_, values_);
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
bool InPlaceRows::PointAhead(const TileRows& rows, const TileRows& last,
                             int64_t width, const unsigned char** table) const {
  const TileRows next = rows.Next();
  const bool readable = PointToReadable(next, width, table);
  if (next.count() < rows.count()) {
    RowSource behind = last.From(0).rows;
    behind.data += behind.row_stride;
    PointTo(behind, rows.count() - next.count(), table + next.count());
  }
  return readable;
}

void InPlaceRows::SetRowsAhead(const KeyTile& tile, const TileRows& keys,
                               const TileRows& values) {
  const KeyTile last = {problem_.key_length - 1, 1};
  ahead_ = tile.count;
  ahead_key_ = tile.first_key + tile.count;
  ahead_readable_ = {PointAhead(keys, last.Keys(problem_, rows_),
                                problem_.key_width, keys_ + ahead_),
                     PointAhead(values, last.Values(problem_, rows_),
                                problem_.value_width, values_ + ahead_)};
}

// The kernels do not read scales where they lie: their lines would be waited
// for when they are copied.
void InPlaceRows::PrefetchScales(const TileRows& next) const {
  if (key_scales_ == nullptr) return;
  next.ForEachPiece([](const RowSource& some, int64_t /*at*/, int64_t count) {
    const int64_t in_line =
        kLine / std::max<int64_t>(1, std::abs(some.scale_stride));
    for (int64_t n = 0; n < count; n += std::max<int64_t>(1, in_line)) {
      __builtin_prefetch(some.scales + n * some.scale_stride, 0, 2);
    }
  });
}

void InPlaceRows::SetTile(const KeyTile& tile, TileArgs& args) {
  const TileRows keys = tile.Keys(problem_, rows_);
  const TileRows values = tile.Values(problem_, rows_);
  InPlaceOperands& operands = args.in_place;
  operands.keys = keys_;
  operands.values = values_;
  operands.value_width = problem_.value_width;
  operands.ahead = tile.count;
  operands.key_scales = key_scales_;
  operands.value_scales = value_scales_;
  if (ScalesFit(operands, keys, values) && SetRows(tile, keys, values)) {
    operands.type = keys.From(0).rows.type;
    PrefetchScales(keys.Next());
    PrefetchScales(values.Next());
    SetRowsAhead(tile, keys, values);
    return;
  }
  operands.type = Element::kFloat32;
  Widen(keys, problem_.key_width, widened_keys_, key_stride_, keys_);
  Widen(values, problem_.value_width, widened_values_, value_stride_, values_);
  operands.ahead = 0;  // nothing to ask for
  ahead_key_ = -1;
}

}  // namespace attention::cpu
