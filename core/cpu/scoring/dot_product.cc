#include "core/cpu/scoring/dot_product.h"

#include <algorithm>

#include "core/cpu/scoring/projection.h"
#include "core/cpu/scoring/score_unit.h"

namespace attention::cpu {

DotProduct::DotProduct(const ValidatedProblem& problem, const Plan& plan,
                       const Kernels& kernels, Scratch& scratch)
    : PackedScoring(problem, plan, kernels, 1, scratch),
      queries_(problem, kernels, plan.row_block,
               std::max(plan.score_part,
                        std::min(problem.query_width, Projection::kDepth)),
               scratch),
      keys_(problem, kernels, plan.decode ? 0 : 2 * kernels.lanes,
            plan.score_part, scratch) {
  if (plan.decode) {
    row_queries_ = scratch.Take<float>(
        plan.row_block * RoundUp(plan.score_width, kernels.lanes));
  }
}

FloatRows DotProduct::Queries(const BlockRows& rows, int64_t first,
                              int64_t columns) {
  return queries_.Queries(rows, first, columns);
}

void DotProduct::SetQueries(const BlockRows& rows,
                            const KeyRange& /*attended*/) {
  rows_ = rows.count();
  const float factor = FactorOf(problem_.scale * UnitOf(problem_).one);
  const int64_t padded = RoundUp(plan_.score_width, kernels_.lanes);
  ForEachPart([&](const Part& part) {
    const FloatRows from = Queries(rows, part.first, part.width);
    if (!plan_.decode) {
      kernels_.pack_queries(from.data, from.stride, rows_, part.width, factor,
                            PackedQueries(part));
      return;
    }
    for (int64_t r = 0; r < rows_; ++r) {
      float* const to = row_queries_ + r * padded;
      for (int64_t i = 0; i < part.width; ++i) {
        to[part.first + i] = from.data[r * from.stride + i] * factor;
      }
      std::fill(to + plan_.score_width, to + padded, 0.0F);
    }
  });
}

void DotProduct::PackKeys(const TileRows& keys, const Part& part, float* packed,
                          TileArgs& args) {
  PackPanels(keys.count(), part, packed, [&](int64_t first, int64_t rows) {
    return keys_.Keys(keys, first, rows, part.first, part.width);
  });
  args.packed.score = Score::kDot;
}

void DotProduct::SetInPlace(TileArgs& args) {
  FillEpilogue(problem_, 1, args.epilogue);
  args.operands = Operands::kInPlace;
  args.in_place.queries = row_queries_;
  args.in_place.query_stride = RoundUp(plan_.score_width, kernels_.lanes);
  args.in_place.key_width = problem_.key_width;
}

}  // namespace attention::cpu
