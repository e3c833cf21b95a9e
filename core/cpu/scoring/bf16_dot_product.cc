#include "core/cpu/scoring/bf16_dot_product.h"

#include <algorithm>

#include "core/cpu/kernels/bf16/products.h"
#include "core/cpu/scoring/row_widener.h"
#include "core/cpu/scoring/score_unit.h"

namespace attention::cpu {

Bf16DotProduct::Bf16DotProduct(const ValidatedProblem& problem,
                               const Plan& plan, const Kernels& kernels,
                               Scratch& scratch)
    : problem_(problem),
      kernels_(kernels),
      terms_(plan.bf16_terms),
      width_(RoundUp(CeilDivide(problem.key_width, 2), kBf16Depth)),
      copy_(terms_ == 2 ? kernels.split_fp16 : kernels.copy_bf16) {
  // Wide keys may be few, which then fit into what a thread keeps.
  const int64_t keys =
      RoundUp(std::min(plan.key_tile, problem.key_length), kBf16Panel);
  const int64_t row_width = terms_ * width_;
  queries_ = scratch.Take<float>(PaddedBf16Rows(plan.row_block) * row_width);
  rows_ = scratch.Take<float>(kBf16Panel * row_width);
  keys_ = scratch.Take<float>(keys * row_width);
  if (IsScaledType(problem.key_type)) scales_ = scratch.Take<float>(keys);
}

int64_t PaddedBf16Rows(int64_t rows) { return RoundUp(rows, kBf16RowTile); }

void Bf16DotProduct::SetQueries(const BlockRows& rows,
                                const KeyRange& /*attended*/) {
  const int64_t row_width = terms_ * width_;
  ForEachHead(
      problem_, rows, [&](const RowSource& from, int64_t row, int64_t count) {
        // What follows the last row is filled anew with each run.
        copy_(from, count, PaddedBf16Rows(row + count) - row,
              problem_.query_width, queries_ + row * row_width, row_width);
      });
}

// Keys `first` ... of a tile.
void Bf16DotProduct::CopyKeys(const RowSource& from, int64_t first,
                              int64_t count, float* to) {
  const int64_t row_width = terms_ * width_;
  if (scales_ == nullptr) {
    copy_(from, count, count, problem_.key_width, to, row_width);
  } else {
    kernels_.copy_bytes_as_bf16(from, count, problem_.key_width, to, row_width,
                                scales_ + first);
  }
}

void Bf16DotProduct::SetKeys(const TileRows& keys, TileArgs& args) {
  const int64_t row_width = terms_ * width_;
  const int64_t last = keys.count();
  // Panel by panel, so that rows are still in the first-level cache when they
  // are packed.
  for (int64_t first = 0; first < last; first += kBf16Panel) {
    const int64_t some = std::min(kBf16Panel, last - first);
    keys.ForEachPiece(
        first, some, [&](const RowSource& from, int64_t at, int64_t count) {
          CopyKeys(from, first + at, count, rows_ + at * row_width);
        });
    kernels_.pack_bf16_keys(rows_, row_width, some, row_width,
                            keys_ + first * row_width);
  }
  if (scales_ != nullptr) {
    std::fill(scales_ + last, scales_ + RoundUp(last, kBf16Panel), 0.0F);
  }
  FillEpilogue(problem_, problem_.scale * UnitOfBf16(problem_).one,
               args.epilogue);
  args.operands = Operands::kBf16;
  args.bf16.terms = terms_;
  args.bf16.width = width_;
  args.bf16.queries = queries_;
  args.bf16.keys = keys_;
  args.bf16.key_scales = scales_;
  args.bf16.products = kernels_.bf16;
}

}  // namespace attention::cpu
