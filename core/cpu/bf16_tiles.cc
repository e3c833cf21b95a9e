#include "core/cpu/bf16_tiles.h"

#include <algorithm>

#include "core/cpu/bf16_products.h"

namespace attention::cpu {
namespace {

int64_t Ceiling(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t RoundUp(int64_t a, int64_t b) { return Ceiling(a, b) * b; }

}  // namespace

Bf16Tiles::Bf16Tiles(const ValidatedProblem& problem, const Plan& plan,
                     const Kernels& kernels, Scratch& scratch)
    : problem_(problem), kernels_(kernels) {
  if (!plan.bf16) return;
  const int64_t keys = RoundUp(plan.key_tile, kBf16Panel);
  width_ = RoundUp(Ceiling(problem.key_width, 2), kBf16Depth);
  value_panels_ = Ceiling(problem.value_width, kBf16Panel);
  const int64_t value_width = value_panels_ * kBf16Panel / 2;
  queries_ = scratch.Take<float>(PaddedRows(plan.row_block) * width_);
  rows_ = scratch.Take<float>(keys * std::max(width_, value_width));
  keys_ = scratch.Take<float>(keys * width_);
  values_ = scratch.Take<float>(keys * value_width);
  weights_ = scratch.Take<float>(kMaxGroupRows * kBf16WeightStride);
}

int64_t Bf16Tiles::PaddedRows(int64_t rows) {
  return RoundUp(rows, kBf16RowTile);
}

bool Bf16Tiles::AddQueries(const RowSource& queries, int64_t first_row,
                           int64_t count) {
  // What follows the last row is filled anew with each piece.
  return kernels_.copy_bf16(
      queries, count, PaddedRows(first_row + count) - first_row,
      problem_.query_width, queries_ + first_row * width_, width_);
}

bool Bf16Tiles::Pack(const RowSource& keys, const RowSource& values,
                     int64_t count) {
  const int64_t padded = RoundUp(count, kBf16Panel);
  if (!kernels_.copy_bf16(keys, count, count, problem_.key_width, rows_,
                          width_)) {
    return false;
  }
  // Pairs are moved like floats.
  kernels_.pack_keys(rows_, width_, count, width_, keys_);
  if (value_panels_ == 0) return true;
  const int64_t value_width = value_panels_ * kBf16Panel / 2;
  if (!kernels_.copy_bf16(values, count, padded, problem_.value_width, rows_,
                          value_width)) {
    return false;
  }
  kernels_.pack_bf16_values(rows_, padded, value_panels_, values_);
  return true;
}

void Bf16Tiles::Fill(TileArgs& args) const {
  args.bf16 = {.width = width_,
               .queries = queries_,
               .keys = keys_,
               .value_panels = value_panels_,
               .values = values_,
               .weights = weights_,
               .products = kernels_.bf16};
}

}  // namespace attention::cpu
