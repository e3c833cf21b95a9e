#include "core/cpu/scoring/bf16_keys_in_place.h"

#include <algorithm>

#include "core/cpu/scoring/bf16_dot_product.h"
#include "core/cpu/scoring/row_widener.h"
#include "core/cpu/scoring/score_unit.h"

namespace attention::cpu {
namespace {

// Elements that one step of a product reads of a key.
constexpr int64_t kStep = 2 * kBf16Depth;

}  // namespace

Bf16KeysInPlace::Bf16KeysInPlace(const ValidatedProblem& problem,
                                 const Plan& plan, const Kernels& kernels,
                                 Scratch& scratch)
    : problem_(problem),
      kernels_(kernels),
      width_(RoundUp(CeilDivide(problem.key_width, 2), kBf16Depth)) {
  const int64_t queries = RoundUp(plan.row_block, kBf16Panel);
  const int64_t keys = RoundUp(plan.key_tile, kBf16Panel);
  queries_ = scratch.Take<float>(queries * width_);
  packed_queries_ = scratch.Take<float>(queries * width_);
  copies_ = scratch.Take<float>(keys * width_);
  rows_ = scratch.Take<Bf16KeyRows>(keys / kBf16RowTile);
}

void Bf16KeysInPlace::SetQueries(const BlockRows& rows,
                                 const KeyRange& /*attended*/) {
  ForEachHead(problem_, rows,
              [&](const RowSource& from, int64_t row, int64_t count) {
                kernels_.copy_bf16(from, count, count, problem_.query_width,
                                   queries_ + row * width_, width_);
              });
  kernels_.pack_bf16_keys(queries_, width_, rows.count(), width_,
                          packed_queries_);
}

// Keys `first` ... of a tile that has `count` more of them, a row tile's: where
// they lie if they are whole steps of elements side by side, else a copy with
// zeros in the place of what is not there.
Bf16KeyRows Bf16KeysInPlace::Rows(const TileRows& keys, int64_t first,
                                  int64_t count) {
  if (count >= kBf16RowTile && problem_.key_width % kStep == 0) {
    const TileRows::Piece piece = keys.From(first);
    if (piece.count >= kBf16RowTile && piece.rows.column_stride == 2) {
      return {piece.rows.data, piece.rows.row_stride};
    }
  }
  float* const copy = copies_ + first * width_;
  count = std::clamp<int64_t>(count, 0, kBf16RowTile);
  keys.ForEachPiece(first, count,
                    [&](const RowSource& some, int64_t at, int64_t n) {
                      kernels_.copy_bf16(some, n, n, problem_.key_width,
                                         copy + at * width_, width_);
                    });
  std::fill(copy + count * width_, copy + kBf16RowTile * width_, 0.0F);
  return {reinterpret_cast<const unsigned char*>(copy),
          width_ * static_cast<int64_t>(sizeof(float))};
}

void Bf16KeysInPlace::SetKeys(const TileRows& keys, TileArgs& args) {
  const int64_t padded = RoundUp(keys.count(), kBf16Panel);
  const TileRows next = keys.Next();
  for (int64_t first = 0; first < padded; first += kBf16RowTile) {
    Bf16KeyRows& rows = rows_[first / kBf16RowTile];
    rows = Rows(keys, first, keys.count() - first);
    if (first + kBf16RowTile > next.count()) continue;
    const TileRows::Piece ahead = next.From(first);
    if (ahead.count < kBf16RowTile) continue;
    rows.ahead = ahead.rows.data;
    rows.ahead_stride = ahead.rows.row_stride;
  }
  FillEpilogue(problem_, problem_.scale * UnitOfBf16(problem_).one,
               args.epilogue);
  args.operands = Operands::kBf16;
  args.bf16.terms = 1;
  args.bf16.width = width_;
  args.bf16.key_rows = rows_;
  args.bf16.packed_queries = packed_queries_;
  args.bf16.products = kernels_.bf16;
}

}  // namespace attention::cpu
