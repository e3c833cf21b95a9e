#include "core/cpu/tile_operands.h"

#include <algorithm>
#include <array>
#include <cstdlib>

namespace attention::cpu {
namespace {

// Values may be read where they lie, unless their rows are so far apart that
// every one takes a page of its own.
constexpr int64_t kFarApart = 2048;

// Rows that lie close together, as one stretch of memory.
ComingBytes Stretch(const RowSource& rows, int64_t count, int64_t width) {
  const int64_t row_bytes = width * (rows.type == Element::kFloat32 ? 4 : 2);
  const bool dense =
      rows.row_stride >= row_bytes && rows.row_stride <= 2 * row_bytes;
  return {rows.data,
          dense && count > 0 ? (count - 1) * rows.row_stride + row_bytes : 0};
}

}  // namespace

TileOperands::TileOperands(JobRun& run, const BlockRows& rows, Scratch& scratch)
    : run_(run),
      problem_(run.problem()),
      plan_(run.plan()),
      kernels_(run.kernels()),
      rows_(rows),
      prepare_(run.problem(), run.plan(), run.kernels(), scratch),
      bf16_(run.problem(), run.plan(), run.kernels(), scratch) {
  mask_rows_ = scratch.Take<const unsigned char*>(plan_.row_block);
  bias_rows_ = scratch.Take<const unsigned char*>(plan_.row_block);
  values_ = scratch.Take<float>(plan_.key_tile * plan_.padded_value_width);
}

int64_t TileOperands::PaddedRows(const Plan& plan) {
  return plan.bf16 ? Bf16Tiles::PaddedRows(plan.row_block) : plan.row_block;
}

void TileOperands::SetRows(KeyRange keys) {
  keys_ = keys;
  SetQueries();
  SetMasks();
}

void TileOperands::SetQueries() {
  prepare_.SetHead(rows_.HeadOf(0));
  if (plan_.method == Method::kGaussianDot) SetCentre();
  serves_bf16_ = plan_.bf16 && AddBf16Queries();
  if (!serves_bf16_) PackQueries();
}

// Keys among which the centre lies: without windows those of the whole batch
// entry, so that a row's bits do not follow from how many rows its block has.
KeyRange TileOperands::CentreSpan() const {
  if (problem_.window.left || problem_.window.right) return keys_;
  const KeyRange first = KeysInRange(problem_, rows_.batch(), 0);
  const KeyRange last =
      KeysInRange(problem_, rows_.batch(), problem_.query_length - 1);
  const KeyRange& more = first.end > last.end ? first : last;
  return more.begin < more.end ? more : KeyRange{0, problem_.key_length};
}

void TileOperands::SetCentre() {
  const KeyRange span = CentreSpan();
  const int64_t count = span.end - span.begin;
  std::array<RowSource, kCentreKeys> keys;
  for (int64_t n = 0; n < kCentreKeys; ++n) {
    const int64_t key = span.begin + (2 * n + 1) * count / (2 * kCentreKeys);
    keys[n] = KeyRow(problem_, rows_.batch(), rows_.kv_head(), key);
  }
  prepare_.SetCentre(keys);
}

void TileOperands::PackQueries() {
  // One head after the other, as the lane's rows are.
  const TensorView& query = problem_.query;
  const bool in_order =
      rows_.HeadOf(0) == rows_.HeadOf(rows_.count() - 1) ||
      query.strides[1] == query.strides[2] * problem_.query_length;
  if (!in_order ||
      !prepare_.UseQueries(
          RowsOf(query, rows_.batch(), rows_.HeadOf(0), rows_.QueryOf(0)))) {
    AddQueries();
  }
  prepare_.PackQueries(rows_.count());
  queries_packed_ = true;
}

// Visits the block's rows head by head; false as soon as a visit is.
template <typename Visit>
bool TileOperands::ForEachHead(const Visit& visit) {
  for (int64_t r = 0; r < rows_.count();) {
    const int64_t query = rows_.QueryOf(r);
    const int64_t count =
        std::min(rows_.count() - r, problem_.query_length - query);
    if (!visit(RowsOf(problem_.query, rows_.batch(), rows_.HeadOf(r), query), r,
               count)) {
      return false;
    }
    r += count;
  }
  return true;
}

void TileOperands::AddQueries() {
  ForEachHead([this](const RowSource& from, int64_t row, int64_t count) {
    prepare_.AddQueries(from, row, count);
    return true;
  });
}

bool TileOperands::AddBf16Queries() {
  prepare_.SkipQueries(rows_.count());
  return ForEachHead([this](const RowSource& from, int64_t row, int64_t count) {
    return bf16_.AddQueries(from, row, count);
  });
}

void TileOperands::SetMasks() {
  Epilogue& epilogue = args_.epilogue;
  const auto set = [this](const TensorView& view, const unsigned char** rows) {
    for (int64_t r = 0; r < rows_.count(); ++r) {
      rows[r] = reinterpret_cast<const unsigned char*>(
          view.At(rows_.batch(), rows_.HeadOf(r), rows_.QueryOf(r), 0));
    }
  };
  if (problem_.attend_mask) {
    set(*problem_.attend_mask, mask_rows_);
    epilogue.mask_rows = mask_rows_;
    epilogue.mask_stride = problem_.attend_mask->strides[3];
  }
  if (problem_.bias) {
    set(*problem_.bias, bias_rows_);
    epilogue.bias_rows = bias_rows_;
    epilogue.bias_stride = problem_.bias->strides[3];
    epilogue.bias_type = ElementOf(problem_.bias->type);
  }
}

void TileOperands::SetValues(const KeyTile& tile) {
  constexpr auto kFloat = static_cast<int64_t>(sizeof(float));
  const RowSource values =
      RowsOf(tile.block->value, rows_.batch(), rows_.kv_head(), tile.first);
  const int64_t width = problem_.value_width;
  const bool readable =
      values.type == Element::kFloat32 && width == plan_.padded_value_width &&
      values.column_stride == kFloat && values.row_stride % kFloat == 0 &&
      (values.row_stride == width * kFloat ||
       std::abs(values.row_stride) < kFarApart) &&
      reinterpret_cast<uintptr_t>(values.data) % kFloat == 0;
  if (readable) {
    args_.values = reinterpret_cast<const float*>(values.data);
    args_.value_stride = values.row_stride / kFloat;
    return;
  }
  kernels_.widen_rows(values, tile.count, width, values_,
                      plan_.padded_value_width, plan_.padded_value_width);
  args_.values = values_;
  args_.value_stride = plan_.padded_value_width;
}

void TileOperands::BringTile(const ValidatedProblem::Block& block,
                             int64_t batch, int64_t kv_head, int64_t first) {
  const int64_t count = std::min(plan_.key_tile, block.key_count - first);
  args_.coming[0] = Stretch(RowsOf(block.key, batch, kv_head, first), count,
                            problem_.key_width);
  args_.coming[1] = Stretch(RowsOf(block.value, batch, kv_head, first), count,
                            problem_.value_width);
}

// What is read after a tile: the next one, or the next block of rows, which
// most likely the same thread computes, and where this one's results go.
void TileOperands::BringNext(const KeyTile& tile) {
  std::fill_n(args_.coming, kMaxComing, ComingBytes{});
  const int64_t next = tile.first + tile.count;
  if (next < tile.block->key_count &&
      tile.block->first_key + next < keys_.end) {
    return BringTile(*tile.block, rows_.batch(), rows_.kv_head(), next);
  }
  const int64_t row_bytes =
      problem_.value_width * ByteSize(problem_.query.type);
  args_.coming[2] = {
      reinterpret_cast<const unsigned char*>(run_.outputs().output.data) +
          rows_.ResultOf(0) * row_bytes,
      rows_.count() * row_bytes};
  if (rows_.index() + 1 < plan_.blocks()) {
    BringRows(BlockRows(problem_, plan_, rows_.index() + 1));
  }
}

void TileOperands::BringRows(const BlockRows& rows) {
  if (rows.begin_lane() && keys_.begin == 0) {
    BringTile(problem_.key_value.front(), rows.batch(), rows.kv_head(), 0);
  }
  const int64_t query = rows.QueryOf(0);
  args_.coming[3] =
      Stretch(RowsOf(problem_.query, rows.batch(), rows.HeadOf(0), query),
              std::min(plan_.row_block, problem_.query_length - query),
              problem_.query_width);
}

// False where the tile's numbers are to be multiplied in FP32.
bool TileOperands::FillBf16Tile(const KeyTile& tile) {
  if (!serves_bf16_ ||
      !bf16_.Pack(
          RowsOf(tile.block->key, rows_.batch(), rows_.kv_head(), tile.first),
          RowsOf(tile.block->value, rows_.batch(), rows_.kv_head(), tile.first),
          tile.count)) {
    return false;
  }
  prepare_.Fill(args_);
  args_.epilogue.factor = prepare_.DotFactor();
  bf16_.Fill(args_);
  return true;
}

bool TileOperands::FillPackedTile(const KeyTile& tile, bool with_values) {
  if (FillBf16Tile(tile)) return true;
  if (!queries_packed_) PackQueries();
  prepare_.PackKeys(
      RowsOf(tile.block->key, rows_.batch(), rows_.kv_head(), tile.first),
      tile.count);
  BringNext(tile);
  args_.coming_lines = 0;
  for (const ComingBytes& coming : args_.coming) {
    args_.coming_lines += (coming.count + kLine - 1) / kLine;
  }
  if (with_values && problem_.value_width > 0) SetValues(tile);
  prepare_.Fill(args_);
  return false;
}

// Rows that the kernels read in whole vectors where they lie.
bool TileOperands::IsReadable(const RowSource& rows, int64_t width) const {
  const int64_t size = rows.type == Element::kFloat32 ? 4 : 2;
  return (rows.type != Element::kFloat16 || kernels_.reads_half) &&
         width % kernels_.lanes == 0 && rows.column_stride == size &&
         rows.row_stride % size == 0 &&
         reinterpret_cast<intptr_t>(rows.data) % size == 0;
}

void TileOperands::FillRowTile(const KeyTile& tile) {
  prepare_.Fill(args_);
  const RowSource keys =
      RowsOf(tile.block->key, rows_.batch(), rows_.kv_head(), tile.first);
  const RowSource values =
      RowsOf(tile.block->value, rows_.batch(), rows_.kv_head(), tile.first);
  const bool widen = !IsReadable(keys, problem_.key_width) ||
                     !IsReadable(values, problem_.value_width);
  prepare_.SetKeyRows(keys, tile.count, widen, args_);
  if (!widen) {
    args_.value_rows = values.data;
    args_.value_row_stride = values.row_stride;
    return;
  }
  if (problem_.value_width > 0) {
    kernels_.widen_rows(values, tile.count, problem_.value_width, values_,
                        plan_.padded_value_width, plan_.padded_value_width);
  }
  args_.value_rows = reinterpret_cast<const unsigned char*>(values_);
  args_.value_row_stride =
      plan_.padded_value_width * static_cast<int64_t>(sizeof(float));
}

}  // namespace attention::cpu
