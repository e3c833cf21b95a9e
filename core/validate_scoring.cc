#include <cmath>
#include <initializer_list>
#include <limits>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "core/validate_parts.h"

namespace attention::internal {
namespace {

// The factors of scores are FP32 on every backend but the reference, in powers
// of two as in those of e. These are round numbers within what fits:
// log2(e) * scale and log2(e) / sigma^2 are finite.
constexpr double kMostScale = 2e38;
constexpr double kLeastSigma = 1e-19;

absl::Status CheckFinite(absl::string_view field, double value) {
  if (std::abs(value) <= std::numeric_limits<float>::max()) {
    return absl::OkStatus();
  }
  return FieldError(field,
                    absl::StrCat(value, " (expected a finite FP32 number)"));
}

absl::Status CheckPositive(absl::string_view field, double value) {
  if (!(value > 0)) {
    return FieldError(field, absl::StrCat(value, " (expected more than 0)"));
  }
  return CheckFinite(field, value);
}

absl::Status CheckScale(double value) {
  if (absl::Status status = CheckFinite("scale", value); !status.ok()) {
    return status;
  }
  if (std::abs(value) <= kMostScale) return absl::OkStatus();
  return FieldError("scale", absl::StrCat(value, " (expected ", -kMostScale,
                                          " to ", kMostScale, ")"));
}

absl::Status CheckSigma(double value) {
  if (absl::Status status = CheckPositive("sigma", value); !status.ok()) {
    return status;
  }
  if (value >= kLeastSigma) return absl::OkStatus();
  return FieldError(
      "sigma", absl::StrCat(value, " (expected ", kLeastSigma, " or more)"));
}

absl::Status CheckEqualWidths(absl::string_view scoring,
                              const AttentionProblem& problem,
                              const ValidatedProblem& valid) {
  if (valid.key_width == valid.query_width) return absl::OkStatus();
  return FieldError(
      "key",
      absl::StrCat("shape ", GivenShape(problem, problem.key_value[0].key),
                   " has width ", valid.key_width, ", query has ",
                   valid.query_width, " (", scoring, " needs equal widths)"));
}

// A parameter of shape `extents`, or (Hq, extents...): checked, and given a
// head extent with stride 0 where it has none. A negative extent is free.
absl::Status ReadParameter(absl::string_view field, const TensorView& view,
                           std::initializer_list<int64_t> extents,
                           const ValidatedProblem& valid, TensorView& result) {
  if (absl::Status status = CheckHostView(field, view); !status.ok()) {
    return status;
  }
  if (!IsFloat32OrQueryType(view.type, valid)) {
    return ParameterTypeError(field, view.type, valid);
  }
  const Shape shared(extents);
  Shape per_head = shared;
  per_head.insert(per_head.begin(), valid.query_heads);
  const auto matches = [&view](const Shape& expected) {
    if (view.shape.size() != expected.size()) return false;
    for (size_t i = 0; i < expected.size(); ++i) {
      if (expected[i] >= 0 && view.shape[i] != expected[i]) return false;
    }
    return true;
  };
  result = view;
  if (matches(per_head)) return absl::OkStatus();
  if (matches(shared)) {
    result.shape.insert(result.shape.begin(), valid.query_heads);
    result.strides.insert(result.strides.begin(), 0);
    return absl::OkStatus();
  }
  const auto text = [](const Shape& shape) {
    return absl::StrReplaceAll(ShapeToString(shape), {{"-1", "h"}});
  };
  return FieldError(
      field, absl::StrCat("shape ", ShapeToString(view.shape), " (expected ",
                          text(shared), " or ", text(per_head), ")"));
}

absl::Status ValidateAdditive(const Additive& given, ValidatedProblem& valid) {
  Additive result;
  absl::Status status = ReadParameter("w_q", given.w_q, {valid.query_width, -1},
                                      valid, result.w_q);
  if (!status.ok()) return status;
  const int64_t hidden = result.w_q.shape[2];
  if (hidden == 0) {
    return FieldError("w_q",
                      absl::StrCat("shape ", ShapeToString(given.w_q.shape),
                                   " has hidden width 0 (expected 1 or more)"));
  }
  status = ReadParameter("w_k", given.w_k, {valid.key_width, hidden}, valid,
                         result.w_k);
  if (!status.ok()) return status;
  // w_v may be a column, (h, 1) or (Hq, h, 1): its last extent is dropped.
  TensorView w_v = given.w_v;
  const bool column = w_v.rank() >= 2 && w_v.shape.back() == 1 &&
                      w_v.shape[w_v.shape.size() - 2] == hidden &&
                      w_v.strides.size() == w_v.shape.size();
  if (column) {
    w_v.shape.pop_back();
    w_v.strides.pop_back();
  }
  status = ReadParameter("w_v", w_v, {hidden}, valid, result.w_v);
  if (!status.ok()) return status;
  valid.hidden_width = hidden;
  valid.scoring = result;
  return absl::OkStatus();
}

// One rule book for every scoring function.
struct ValidateEach {
  const AttentionProblem& problem;
  ValidatedProblem& valid;

  absl::Status operator()(const ScaledDotProduct& given) const {
    valid.scale = given.scale.value_or(
        1 / std::sqrt(static_cast<double>(valid.query_width)));
    valid.scoring = ScaledDotProduct{valid.scale};
    absl::Status status =
        CheckEqualWidths("scaled dot product", problem, valid);
    status.Update(CheckScale(valid.scale));
    return status;
  }
  absl::Status operator()(const Additive& given) const {
    return ValidateAdditive(given, valid);
  }
  absl::Status operator()(const Gaussian& given) const {
    valid.scoring = given;
    absl::Status status = CheckEqualWidths("Gaussian scoring", problem, valid);
    status.Update(CheckSigma(given.sigma));
    return status;
  }
  absl::Status operator()(const Bilinear& given) const {
    Bilinear result = given;
    absl::Status status = ReadParameter(
        "m", given.m, {valid.query_width, valid.key_width}, valid, result.m);
    status.Update(CheckScale(given.scale));
    valid.scale = given.scale;
    valid.scoring = result;
    return status;
  }
};

}  // namespace

absl::Status ValidateScoring(const AttentionProblem& problem,
                             ValidatedProblem& valid) {
  absl::Status status =
      std::visit(ValidateEach{problem, valid}, problem.scoring);
  if (problem.softcap) {
    status.Update(CheckPositive("softcap", *problem.softcap));
    valid.softcap = problem.softcap;
  }
  return status;
}

}  // namespace attention::internal
