#include "core/cpu/scoring/bilinear.h"

#include <variant>

namespace attention::cpu {

BilinearProduct::BilinearProduct(const ValidatedProblem& problem,
                                 const Plan& plan, const Kernels& kernels,
                                 Scratch& scratch)
    : DotProduct(problem, plan, kernels, scratch),
      m_(kernels, scratch),
      stride_(RoundUp(problem.key_width, kernels.lanes)),
      projected_(scratch.Take<float>(plan.row_block * stride_)) {}

void BilinearProduct::SetQueries(const BlockRows& rows,
                                 const KeyRange& attended) {
  const auto& bilinear = std::get<Bilinear>(problem_.scoring);
  m_.SetMatrix(ParameterRows(bilinear.m, rows.HeadOf(0)), problem_.query_width,
               problem_.key_width);
  m_.Project(
      rows.count(), 0, problem_.key_width,
      [&](int64_t first, int64_t columns) {
        return queries_.Queries(rows, first, columns);
      },
      [this] { return Pause(); }, projected_, stride_);
  DotProduct::SetQueries(rows, attended);
}

FloatRows BilinearProduct::Queries(const BlockRows& /*rows*/, int64_t first,
                                   int64_t /*columns*/) {
  return {projected_ + first, stride_};
}

}  // namespace attention::cpu
