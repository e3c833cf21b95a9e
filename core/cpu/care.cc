#include "core/cpu/care.h"

#include <algorithm>
#include <cmath>

#include "core/element.h"

namespace attention::cpu {
namespace {

constexpr int64_t kMostSamples = 32;
constexpr int64_t kSampleFloats = int64_t{16} * 1024;

}  // namespace

CareDecision::CareDecision(const ValidatedProblem& problem, const Plan& plan,
                           const Kernels& kernels, Prepare& prepare,
                           Scratch& scratch)
    : problem_(problem), plan_(plan), kernels_(kernels), prepare_(prepare) {
  stride_ = problem.key_width;
  samples_ = scratch.Take<float>(std::max(kSampleFloats, stride_));
  key_ = scratch.Take<float>(stride_);
}

void CareDecision::LoadKey(int64_t key, float* to) const {
  kernels_.widen_rows(KeyRow(problem_, batch_, kv_head_, key), 1,
                      problem_.key_width, to, stride_, stride_);
}

void CareDecision::LoadSamples() {
  if (loaded_) return;
  loaded_ = true;
  // They follow from the problem alone, not from the block.
  const int64_t count =
      std::clamp<int64_t>(kSampleFloats / stride_, 1, kMostSamples);
  step_ = std::max<int64_t>(1, (problem_.key_length + count - 1) / count);
  for (int64_t n = 0; n * step_ < problem_.key_length; ++n) {
    float* const sample = samples_ + n * stride_;
    LoadKey(n * step_, sample);
    for (int64_t i = 0; i < stride_; ++i) {
      const double magnitude = std::abs(sample[i]);
      if (!(magnitude <= largest_)) largest_ = magnitude;  // NaN, too
    }
  }
}

double CareDecision::SumOfMagnitudes(const Row& row, int64_t key,
                                     const float* values) {
  double bias = 0;
  if (problem_.bias) {
    bias =
        LoadElement(problem_.bias->type,
                    problem_.bias->At(batch_, row.id.head, row.id.query, key));
    if (std::isinf(bias)) return 0;
  }
  if (problem_.attend_mask &&
      *problem_.attend_mask->At(batch_, row.id.head, row.id.query, key) ==
          std::byte{0}) {
    return 0;
  }
  return std::abs(bias) + prepare_.ScoreMagnitude(row.index, values);
}

double CareDecision::SumOfMagnitudes(const Row& row, int64_t key) {
  LoadKey(key, key_);
  return SumOfMagnitudes(row, key, key_);
}

// A few keys will do: what counts is the largest of their sums.
bool CareDecision::AllSums(const Row& row,
                           absl::FunctionRef<bool(double)> holds) {
  LoadSamples();
  int64_t key = (row.range.begin + step_ - 1) / step_ * step_;
  if (key >= row.range.end) {
    return holds(SumOfMagnitudes(row, row.range.begin));
  }
  for (; key < row.range.end; key += step_) {
    const float* const sample = samples_ + key / step_ * stride_;
    if (!holds(SumOfMagnitudes(row, key, sample))) return false;
  }
  return true;
}

bool CareDecision::MayNeed(double max) const {
  return MayBeFlat(max) || plan_.method == Method::kGaussianDot;
}

bool CareDecision::MayBeFlat(double max) const {
  return problem_.query.type == DataType::kFloat32 &&
         (plan_.method == Method::kAdditive || std::abs(max) < kFlat);
}

bool CareDecision::IsFlat(const Row& row) {
  if (!MayBeFlat(row.max)) return false;
  const bool additive = plan_.method == Method::kAdditive;
  if (!problem_.bias) {
    const double per_element = prepare_.MagnitudePerElement(row.index);
    if (per_element == 0) return true;
    if (additive) return per_element < kFlat;
    LoadSamples();
    if (per_element * largest_ < kFlat) return true;
  }
  return AllSums(row, [](double sum) { return sum < kFlat; });
}

bool CareDecision::LosesToCentre(const Row& row) {
  if (plan_.method != Method::kGaussianDot) return false;
  const double from_centre = prepare_.DistanceFromCentre(row.index);
  const auto loses = [from_centre](double known) {
    return from_centre > known + 1;
  };
  // Most rows need no look at their keys.
  return loses(std::abs(row.max)) &&
         loses(SumOfMagnitudes(row, row.range.end - 1)) && AllSums(row, loses);
}

}  // namespace attention::cpu
