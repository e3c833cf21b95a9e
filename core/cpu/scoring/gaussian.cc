#include "core/cpu/scoring/gaussian.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <variant>

#include "core/cpu/scoring/score_unit.h"

namespace attention::cpu {
namespace {

constexpr int64_t kFewKeys = 8;
constexpr int64_t kMeans = 3;
constexpr int64_t kKeysOfMean = 4;

// Written so that the compiler makes vectors of it.
float FiniteOrZero(float x) {
  return std::abs(x) <= std::numeric_limits<float>::max() ? x : 0.0F;
}

float Median(float a, float b, float c) {
  return std::max(std::min(a, b), std::min(std::max(a, b), c));
}

RowSource KeyRow(const ValidatedProblem& problem, const BlockRows& rows,
                 int64_t key) {
  const ValidatedProblem::Block& block = BlockOf(problem, key);
  return RowsOf(block, kKeys, rows.batch(), rows.kv_head(),
                key - block.first_key);
}

}  // namespace

GaussianProduct::GaussianProduct(const ValidatedProblem& problem,
                                 const Plan& plan, const Kernels& kernels,
                                 Scratch& scratch)
    : PackedScoring(problem, plan, kernels, 1, scratch),
      sigma_(std::get<Gaussian>(problem.scoring).sigma),
      queries_(problem, kernels, plan.row_block, plan.score_part, scratch),
      keys_(problem, kernels, 2 * kernels.lanes, plan.score_part, scratch),
      lost_rows_(plan.row_block, scratch) {
  const int64_t keys = RoundUp(plan.key_tile, 2 * kernels.lanes);
  const int64_t most = std::max(plan.row_block, 2 * kernels.lanes);
  centre_stride_ = RoundUp(problem.key_width, kernels.lanes);
  centre_ = scratch.Take<float>((kMeans + 1) * centre_stride_);
  centred_ =
      scratch.Take<float>(most * RoundUp(plan.score_part, kernels.lanes));
  key_addend_ = scratch.Take<float>(keys);
  key_norms_ = scratch.Take<double>(keys);
  row_shift_ = scratch.Take<double>(plan.row_block);
  row_addend_ = scratch.Take<float>(plan.row_block);
}

void GaussianProduct::SetCentre(const BlockRows& rows,
                                const KeyRange& attended) {
  const int64_t count = attended.end - attended.begin;
  const int64_t means = count <= kFewKeys ? 1 : kMeans;
  const int64_t of_mean =
      means == 1 ? count : std::min(count / kMeans, kKeysOfMean);
  const int64_t samples = means * of_mean;
  const float share = 1.0F / static_cast<float>(of_mean);
  std::fill_n(centre_, means * centre_stride_, 0.0F);
  float* const key_row = centre_ + kMeans * centre_stride_;
  for (int64_t n = 0; n < samples; ++n) {
    const int64_t key = attended.begin + (2 * n + 1) * count / (2 * samples);
    kernels_.widen_rows(KeyRow(problem_, rows, key), 1, problem_.key_width,
                        key_row, centre_stride_, centre_stride_);
    float* const mean = centre_ + n % means * centre_stride_;
    for (int64_t i = 0; i < centre_stride_; ++i) {
      mean[i] += share * FiniteOrZero(key_row[i]);
    }
  }
  if (means == 1) return;
  const float* const b = centre_ + centre_stride_;
  const float* const c = b + centre_stride_;
  for (int64_t i = 0; i < centre_stride_; ++i) {
    centre_[i] = Median(centre_[i], b[i], c[i]);
  }
}

FloatRows GaussianProduct::Centre(const FloatRows& rows, int64_t count,
                                  const Part& part, double* squared_norms) {
  if (part.first == 0) std::fill_n(squared_norms, count, 0.0);
  const int64_t stride = RoundUp(plan_.score_part, kernels_.lanes);
  kernels_.centre_rows({.from = rows.data,
                        .from_stride = rows.stride,
                        .rows = count,
                        .width = part.width,
                        .centre = centre_ + part.first,
                        .to = centred_,
                        .to_stride = stride,
                        .squared_norms = squared_norms});
  return {centred_, stride};
}

void GaussianProduct::SetQueries(const BlockRows& rows,
                                 const KeyRange& attended) {
  rows_ = rows.count();
  SetCentre(rows, attended);
  const float factor = FactorOf(UnitOf(problem_).one / (sigma_ * sigma_));
  ForEachPart([&](const Part& part) {
    const FloatRows from =
        Centre(queries_.Queries(rows, part.first, part.width), rows_, part,
               row_shift_);
    kernels_.pack_queries(from.data, from.stride, rows_, part.width, factor,
                          PackedQueries(part));
  });
  for (int64_t r = 0; r < rows_; ++r) {
    row_shift_[r] /= -2 * sigma_ * sigma_;
    row_addend_[r] = static_cast<float>(row_shift_[r]);
    lost_rows_.SetRow(r, row_shift_[r]);
  }
}

void GaussianProduct::PackKeys(const TileRows& keys, const Part& part,
                               float* packed, TileArgs& args) {
  const int64_t count = keys.count();
  PackPanels(count, part, packed, [&](int64_t first, int64_t rows) {
    return Centre(keys_.Keys(keys, first, rows, part.first, part.width), rows,
                  part, key_norms_ + first);
  });
  args.packed.score = Score::kDot;
  if (!part.last) return;
  const double one = UnitOf(problem_).one;
  const double factor = -one / (2 * sigma_ * sigma_);
  for (int64_t k = 0; k < count; ++k) {
    key_addend_[k] = static_cast<float>(factor * key_norms_[k]);
  }
  std::fill(key_addend_ + count,
            key_addend_ + RoundUp(count, 2 * kernels_.lanes), 0.0F);
  args.packed.key_addend = key_addend_;
  if (problem_.softcap) args.epilogue.row_addend = row_addend_;
  args.far_rows = lost_rows_.Watched(one);
}

bool GaussianProduct::LostRow(int64_t row, double sum) const {
  return lost_rows_.Lost(row, sum);
}

double GaussianProduct::LogSumExpShift(int64_t row) const {
  return problem_.softcap ? 0 : row_shift_[row];
}

}  // namespace attention::cpu
