#include "core/cpu/row_care.h"

#include <algorithm>
#include <cmath>
#include <variant>

#include "core/cpu/prepare.h"
#include "core/element.h"

namespace attention::cpu {
namespace {

constexpr double kLn2 = 0.6931471805599453;

// A larger factor makes more than a rounding of a score of what was subnormal.
constexpr double kHugeFactor = 1e27;

}  // namespace

RowCare::RowCare(JobRun& run, const BlockRows& rows, TileOperands& operands,
                 Scratch& scratch)
    : run_(run),
      problem_(run.problem()),
      rows_(rows),
      operands_(operands),
      care_(run.problem(), run.plan(), run.kernels(), operands.prepare(),
            scratch) {
  care_.SetKeys(rows.batch(), rows.kv_head());
}

bool RowCare::QueryHasNan(int64_t row) const {
  for (int64_t i = 0; i < problem_.query_width; ++i) {
    const double element = LoadElement(
        problem_.query.type, problem_.query.At(rows_.batch(), rows_.HeadOf(row),
                                               rows_.QueryOf(row), i));
    if (std::isnan(element)) return true;
  }
  return false;
}

// True where products of the row's scores may be more than the least that
// counts although a factor of theirs is subnormal, and was taken for 0.
bool RowCare::LosesSubnormals(int64_t row) const {
  const DataType type = problem_.query.type;
  const bool is_product =
      std::holds_alternative<ScaledDotProduct>(problem_.scoring) ||
      std::holds_alternative<Bilinear>(problem_.scoring);
  if (!is_product || type == DataType::kFloat16) return false;
  const double factor = std::abs(problem_.scale) / kLn2;
  // Of the query itself, before it is scaled.
  const auto least =
      static_cast<float>(0x1p-126 / std::clamp(factor, 0x1p-100, 1.0));
  const auto most = static_cast<float>(kHugeFactor / std::max(factor, 1.0));
  if (run_.kernels().any_beyond(RowsOf(problem_.query, rows_.batch(),
                                       rows_.HeadOf(row), rows_.QueryOf(row)),
                                problem_.query_width, least, most)) {
    return true;
  }
  return std::holds_alternative<Bilinear>(problem_.scoring) &&
         type == DataType::kFloat32 &&
         operands_.prepare().MagnitudePerElement(row) > kHugeFactor;
}

bool RowCare::Needs(const Result& result) {
  if (std::isnan(result.sum)) {
    // A NaN in the query is one in every score. Others may be FP32's alone: a
    // query too small for it against an infinite key, a product or a distance
    // from the centre that overflows, an infinite w_v taken apart into a sum
    // and what is subtracted from it. And keys that take no part keep weights
    // of 0.
    return problem_.wanted.weights || !QueryHasNan(result.row);
  }
  // Perhaps a value of a key that takes no part, times 0.
  if (result.not_finite) return true;
  // Perhaps the sum of products that were subnormal.
  if (result.tiny && run_.tiny_values().In(rows_.batch(), rows_.kv_head())) {
    return true;
  }
  if (result.sum == 0) {
    return problem_.empty_rows == EmptyRows::kUniform &&
           problem_.key_length > 0;
  }
  if (LosesSubnormals(result.row)) return true;
  const double max =
      result.max * kLn2 + operands_.prepare().LogSumExpShift(result.row);
  if (!care_.MayNeed(max)) return false;
  const CareDecision::Row known{.index = result.row,
                                .id = rows_.IdOf(result.row),
                                .range = result.range,
                                .max = max};
  return care_.IsFlat(known) || care_.LosesToCentre(known);
}

}  // namespace attention::cpu
