#include "core/cpu/scoring/gaussian_differences.h"

#include <variant>

#include "core/cpu/scoring/score_unit.h"

namespace attention::cpu {
GaussianDifferences::GaussianDifferences(const ValidatedProblem& problem,
                                         const Plan& plan,
                                         const Kernels& kernels,
                                         Scratch& scratch)
    : PackedScoring(problem, plan, kernels, 1, scratch),
      queries_(problem, kernels, plan.row_block, plan.score_part, scratch),
      keys_(problem, kernels, 2 * kernels.lanes, plan.score_part, scratch) {}

void GaussianDifferences::SetQueries(const BlockRows& rows,
                                     const KeyRange& /*attended*/) {
  rows_ = rows.count();
  ForEachPart([&](const Part& part) {
    const FloatRows from = queries_.Queries(rows, part.first, part.width);
    kernels_.pack_queries(from.data, from.stride, rows_, part.width, 1.0F,
                          PackedQueries(part));
  });
}

void GaussianDifferences::PackKeys(const TileRows& keys, const Part& part,
                                   float* packed, TileArgs& args) {
  PackPanels(keys.count(), part, packed, [&](int64_t first, int64_t rows) {
    return keys_.Keys(keys, first, rows, part.first, part.width);
  });
  const double sigma = std::get<Gaussian>(problem_.scoring).sigma;
  args.packed.score = Score::kDifference;
  FillEpilogue(problem_, UnitOf(problem_).one / (2 * sigma * sigma),
               args.epilogue);
}

}  // namespace attention::cpu
