#include "client/python-engine/native/output.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/python-engine/native/python.h"
#include "server/request/request_builder.h"

namespace attention::python {
namespace {

using server::FieldError;

absl::Status CheckFits(const Array& out, const ValidatedBatch& batch) {
  if (!out.writable) return FieldError("out", "cannot be written to");
  if (out.view.type != batch.output_type) {
    return FieldError(
        "out", absl::StrCat("datatype ", Name(out.view.type),
                            ", the output has ", Name(batch.output_type)));
  }
  if (out.view.shape != batch.output_shape) {
    return FieldError(
        "out",
        absl::StrCat("shape ", ShapeToString(out.view.shape),
                     ", the output has ", ShapeToString(batch.output_shape)));
  }
  return absl::OkStatus();
}

bool HasElements(const TensorView& view) {
  return std::find(view.shape.begin(), view.shape.end(), 0) == view.shape.end();
}

// Whether no two elements share memory, as far as sorted strides tell: each
// extent steps over all of those with smaller steps. A view with elements.
bool IsApart(const MutableTensorView& view) {
  std::vector<std::pair<int64_t, int64_t>> steps;  // stride, extent
  for (size_t i = 0; i < view.shape.size(); ++i) {
    if (view.shape[i] > 1) {
      steps.emplace_back(std::abs(view.strides[i]), view.shape[i]);
    }
  }
  std::sort(steps.begin(), steps.end());
  int64_t span = ByteSize(view.type);
  for (const auto& [stride, extent] : steps) {
    if (stride < span) return false;
    span = stride * (extent - 1) + span;
  }
  return true;
}

// The layouts that the engine writes: rows without gaps, in any order where
// there are four extents.
absl::Status CheckLayout(const MutableTensorView& view) {
  const bool rows =
      view.shape.back() == 1 || view.strides.back() == ByteSize(view.type);
  if (rows && IsApart(view)) return absl::OkStatus();
  return FieldError(
      "out",
      absl::StrCat("strides ", ShapeToString(view.strides), " of shape ",
                   ShapeToString(view.shape),
                   " (expected rows without gaps that share no memory)"));
}

struct Range {
  uintptr_t begin;
  uintptr_t end;
};

// The addresses between the first and the last element, of a view with some.
Range RangeOf(const TensorView& view) {
  const auto first = reinterpret_cast<uintptr_t>(view.data);
  Range range = {first, first + static_cast<uintptr_t>(ByteSize(view.type))};
  for (size_t i = 0; i < view.shape.size(); ++i) {
    const int64_t span = (view.shape[i] - 1) * view.strides[i];
    (span < 0 ? range.begin : range.end) += static_cast<uintptr_t>(span);
  }
  return range;
}

absl::Status CheckApart(const Array& out, const Arguments& arguments) {
  const Range written = RangeOf(ReadOnly(out.view));
  for (const auto& [name, array] : arguments.arrays) {
    if (!HasElements(ReadOnly(array.view))) continue;
    const Range read = RangeOf(ReadOnly(array.view));
    if (written.begin >= read.end || read.begin >= written.end) continue;
    // They may still lie between each other, as the parts of a projection do.
    if (nanobind::cast<bool>(
            GetPython().share_memory(out.array, array.array))) {
      return FieldError(
          "out",
          absl::StrCat("overlaps ", name,
                       " (expected memory of its own: results are written "
                       "while tensors are still read)"));
    }
  }
  return absl::OkStatus();
}

// (B, Lq, Dv) and (Lq, Dv) as (B, 1, Lq, Dv), whose strides the engine follows.
void Widen(MutableTensorView& view) {
  if (view.rank() == 2) {
    view.shape.insert(view.shape.begin(), 1);
    view.strides.insert(view.strides.begin(), 0);
  }
  view.shape.insert(view.shape.begin() + 1, 1);
  view.strides.insert(view.strides.begin() + 1, 0);
}

}  // namespace

MutableTensorView OutputView(const Array& out, const ValidatedBatch& batch,
                             const Arguments& arguments) {
  Check(CheckFits(out, batch));
  MutableTensorView view = out.view;
  if (!HasElements(ReadOnly(view))) return view;
  Check(CheckLayout(view));
  Check(CheckApart(out, arguments));
  if (batch.form == ValidatedBatch::Form::kOneProblem && view.rank() < 4) {
    Widen(view);
  }
  return view;
}

}  // namespace attention::python
