#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "core/element.h"
#include "core/validate_parts.h"

namespace attention {
namespace internal {
namespace {

// FP32 of shape (Hq) or (B, Hq), widened to the latter.
absl::Status ReadPerHead(absl::string_view field, const TensorView& view,
                         const ValidatedProblem& valid,
                         std::optional<TensorView>& result) {
  if (absl::Status status = CheckHostView(field, view); !status.ok()) {
    return status;
  }
  if (view.type != DataType::kFloat32) {
    return FieldError(
        field, absl::StrCat("datatype ", Name(view.type), " (expected FP32)"));
  }
  const Shape shared = {valid.query_heads};
  const Shape per_batch = {valid.batch, valid.query_heads};
  if (view.shape != shared && view.shape != per_batch) {
    return FieldError(
        field, absl::StrCat("shape ", ShapeToString(view.shape), " (expected ",
                            ShapeToString(shared), " or ",
                            ShapeToString(per_batch), ")"));
  }
  result = view;
  if (view.rank() == 1) {
    result->shape = per_batch;
    result->strides.insert(result->strides.begin(), 0);
  }
  return absl::OkStatus();
}

// Sinks that the batch shares are looked at once, also where it is empty: one
// without rows may have any number of entries.
absl::Status CheckSinks(const TensorView& given, int64_t first_entry,
                        const ValidatedProblem& valid) {
  const Shape once = WithoutRepeats(given).shape;
  const int64_t entries = given.rank() == 1 ? 1 : once.front();
  for (int64_t b = 0; b < entries; ++b) {
    for (int64_t h = 0; h < once.back(); ++h) {
      const float sink = valid.Sink(b, h);
      if (sink <= std::numeric_limits<float>::max()) continue;
      const Shape index =
          given.rank() == 1 ? Shape{h} : Shape{first_entry + b, h};
      return FieldError(
          "sinks", absl::StrCat("element ", ShapeToString(index), " is ", sink,
                                " (expected a finite number, or -inf for no "
                                "sink)"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidatePerHead(const AttentionProblem& problem,
                             ValidatedProblem& valid) {
  absl::Status status;
  if (problem.alibi_slopes) {
    status.Update(ReadPerHead("alibi_slopes", *problem.alibi_slopes, valid,
                              valid.alibi_slopes));
  }
  if (problem.sinks) {
    status.Update(ReadPerHead("sinks", *problem.sinks, valid, valid.sinks));
    if (valid.sinks && !problem.sinks_checked) {
      status.Update(CheckSinks(*problem.sinks, problem.first_entry, valid));
    }
  }
  return status;
}

}  // namespace internal

namespace {

float OfHead(const std::optional<TensorView>& view, int64_t batch, int64_t head,
             float absent) {
  if (!view) return absent;
  return static_cast<float>(LoadElement(
      view->type,
      view->data + batch * view->strides[0] + head * view->strides[1]));
}

}  // namespace

float ValidatedProblem::AlibiSlope(int64_t batch_entry,
                                   int64_t query_head) const {
  return OfHead(alibi_slopes, batch_entry, query_head, 0);
}

float ValidatedProblem::Sink(int64_t batch_entry, int64_t query_head) const {
  return OfHead(sinks, batch_entry, query_head,
                -std::numeric_limits<float>::infinity());
}

}  // namespace attention
