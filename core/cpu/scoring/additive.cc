#include "core/cpu/scoring/additive.h"

#include <algorithm>
#include <cmath>
#include <variant>

#include "core/cpu/scoring/score_unit.h"

namespace attention::cpu {
namespace {

// Projections up to which e^(2 x) is well within FP32's range.
constexpr float kLargestProjection = 40.0F;
// A weight up to here times three of them stays finite.
constexpr double kLargestWeight = 0x1p20;
// The exponent of FP32's largest power of 2: what weights are divided by is
// multiplied by in FP32.
constexpr double kLargestScale = 127;

}  // namespace

AdditiveScoring::AdditiveScoring(const ValidatedProblem& problem,
                                 const Plan& plan, const Kernels& kernels,
                                 Scratch& scratch)
    : PackedScoring(problem, plan, kernels, 2, scratch),
      queries_(problem, kernels, plan.row_block,
               std::min(problem.query_width, Projection::kDepth), scratch),
      keys_(problem, kernels, plan.key_tile,
            std::min(problem.key_width, Projection::kDepth), scratch),
      w_q_(kernels, scratch),
      w_k_(kernels, scratch),
      query_stride_(RoundUp(problem.hidden_width, kernels.lanes)),
      part_stride_(RoundUp(plan.score_part, kernels.lanes)) {
  const int64_t most = std::max(plan.row_block, plan.key_tile);
  projected_queries_ = scratch.Take<float>(plan.row_block * query_stride_);
  projected_keys_ = scratch.Take<float>(plan.key_tile * part_stride_);
  exponentials_ = scratch.Take<float>(most * part_stride_ * 2);
  w_v_ = scratch.Take<float>(query_stride_);
  row_addend_ = scratch.Take<float>(plan.row_block);
  forms_ = scratch.Take<Score>(CeilDivide(plan.score_width, plan.score_part));
}

// w_v as the weights of 1 / (e^(2 x) + 1), divided by a power of 2 where that
// keeps them small.
void AdditiveScoring::SetParameters(int64_t head) {
  const auto& additive = std::get<Additive>(problem_.scoring);
  const int64_t hidden = problem_.hidden_width;
  w_q_.SetMatrix(ParameterRows(additive.w_q, head), problem_.query_width,
                 hidden);
  w_k_.SetMatrix(ParameterRows(additive.w_k, head), problem_.key_width, hidden);
  kernels_.widen_rows(ParameterVector(additive.w_v, head), 1, hidden, w_v_,
                      query_stride_, query_stride_);
  const double largest = kernels_.largest_magnitude(w_v_, hidden);
  // An infinite weight of what is never below 0 would lose the sign of the
  // tanh.
  if (!std::isfinite(largest)) std::fill_n(w_v_, hidden, std::nanf(""));
  const double unit = UnitOf(problem_).one;
  w_v_scale_ = std::isfinite(largest) && largest * unit > kLargestWeight
                   ? std::exp2(std::min(std::ceil(std::log2(largest * unit)),
                                        kLargestScale))
                   : 1;
  w_v_sum_ = 0;
  for (int64_t i = 0; i < hidden; ++i) {
    w_v_sum_ += w_v_[i];
    w_v_[i] = static_cast<float>(-2 * unit / w_v_scale_ * w_v_[i]);
  }
}

void AdditiveScoring::SetQueries(const BlockRows& rows,
                                 const KeyRange& /*attended*/) {
  rows_ = rows.count();
  SetParameters(rows.HeadOf(0));
  w_q_.Project(
      rows_, 0, problem_.hidden_width,
      [&](int64_t first, int64_t columns) {
        return queries_.Queries(rows, first, columns);
      },
      [this] { return Pause(); }, projected_queries_, query_stride_);
  largest_query_ =
      kernels_.largest_magnitude(projected_queries_, rows_ * query_stride_);
  std::fill_n(row_addend_, rows_, static_cast<float>(w_v_sum_));
  ForEachPart([this](const Part& part) { PackQueries(part, Score::kTanh); });
}

FloatRows AdditiveScoring::Exponentials(const FloatRows& rows, int64_t count,
                                        int64_t width, Score form) {
  const int64_t stride = (form == Score::kTanhWide ? 2 : 1) * part_stride_;
  const auto to_exponentials =
      form == Score::kTanhWide ? kernels_.exp_twice_wide : kernels_.exp_twice;
  const int64_t padded = RoundUp(width, kernels_.lanes);
  for (int64_t r = 0; r < count; ++r) {
    to_exponentials(rows.data + r * rows.stride, padded,
                    exponentials_ + r * stride);
  }
  return {exponentials_, stride};
}

void AdditiveScoring::PackQueries(const Part& part, Score form) {
  const FloatRows from =
      Exponentials({projected_queries_ + part.first, query_stride_}, rows_,
                   part.width, form);
  kernels_.pack_queries(from.data, from.stride, rows_,
                        (form == Score::kTanhWide ? 2 : 1) * part.width, 1.0F,
                        PackedQueries(part));
  forms_[part.first / plan_.score_part] = form;
}

void AdditiveScoring::PackKeys(const TileRows& keys, const Part& part,
                               float* packed, TileArgs& args) {
  const int64_t count = keys.count();
  const int64_t stride = RoundUp(part.width, kernels_.lanes);
  w_k_.Project(
      count, part.first, part.width,
      [&](int64_t first, int64_t columns) {
        return keys_.Keys(keys, 0, count, first, columns);
      },
      [this] { return Pause(); }, projected_keys_, stride);
  const float largest =
      kernels_.largest_magnitude(projected_keys_, count * stride);
  // Wide where one is NaN, too.
  const Score form =
      largest <= kLargestProjection && largest_query_ <= kLargestProjection
          ? Score::kTanh
          : Score::kTanhWide;
  if (forms_[part.first / plan_.score_part] != form) PackQueries(part, form);
  const FloatRows from =
      Exponentials({projected_keys_, stride}, count, part.width, form);
  kernels_.pack_keys(from.data, from.stride, count,
                     (form == Score::kTanhWide ? 2 : 1) * part.width, packed);
  args.packed.score = form;
  args.packed.tanh_weights = w_v_ + part.first;
  FillEpilogue(problem_, w_v_scale_, args.epilogue);
  if (problem_.softcap) args.epilogue.row_addend = row_addend_;
}

double AdditiveScoring::LogSumExpShift(int64_t /*row*/) const {
  return problem_.softcap ? 0 : w_v_sum_;
}

}  // namespace attention::cpu
