#include "core/cpu/scoring/bf16_dot_product.h"

#include "core/cpu/kernels/bf16/products.h"
#include "core/cpu/scoring/row_widener.h"
#include "core/cpu/scoring/score_unit.h"

namespace attention::cpu {

Bf16DotProduct::Bf16DotProduct(const ValidatedProblem& problem,
                               const Plan& plan, const Kernels& kernels,
                               Scratch& scratch)
    : problem_(problem),
      kernels_(kernels),
      width_(RoundUp(CeilDivide(problem.key_width, 2), kBf16Depth)) {
  const int64_t keys = RoundUp(plan.key_tile, kBf16Panel);
  queries_ = scratch.Take<float>(PaddedBf16Rows(plan.row_block) * width_);
  rows_ = scratch.Take<float>(keys * width_);
  keys_ = scratch.Take<float>(keys * width_);
}

int64_t PaddedBf16Rows(int64_t rows) { return RoundUp(rows, kBf16RowTile); }

void Bf16DotProduct::SetQueries(const BlockRows& rows,
                                const KeyRange& /*attended*/) {
  ForEachHead(
      problem_, rows, [&](const RowSource& from, int64_t row, int64_t count) {
        // What follows the last row is filled anew with each run.
        kernels_.copy_bf16(from, count, PaddedBf16Rows(row + count) - row,
                           problem_.query_width, queries_ + row * width_,
                           width_);
      });
}

void Bf16DotProduct::SetKeys(const TileRows& keys, TileArgs& args) {
  keys.ForEachPiece([this](const RowSource& some, int64_t at, int64_t count) {
    kernels_.copy_bf16(some, count, count, problem_.key_width,
                       rows_ + at * width_, width_);
  });
  kernels_.pack_bf16_keys(rows_, width_, keys.count(), width_, keys_);
  FillEpilogue(problem_, problem_.scale * UnitOfBf16(problem_).one,
               args.epilogue);
  args.operands = Operands::kBf16;
  args.bf16.width = width_;
  args.bf16.queries = queries_;
  args.bf16.keys = keys_;
  args.bf16.key_rows = nullptr;
  args.bf16.products = kernels_.bf16;
}

}  // namespace attention::cpu
