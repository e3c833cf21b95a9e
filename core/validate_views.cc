#include <cstddef>
#include <string>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "core/validate_parts.h"

namespace attention::internal {

absl::Status FieldError(absl::string_view field, absl::string_view problem) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", problem));
}

absl::Status CheckView(absl::string_view field, const TensorView& view) {
  if (view.strides.size() != view.shape.size()) {
    return FieldError(field, "as many strides as extents are expected");
  }
  if (const auto count = ElementCount(view.shape, ByteSize(view.type));
      !count.ok()) {
    return FieldError(field, count.status().message());
  }
  return absl::OkStatus();
}

absl::Status CheckHostView(absl::string_view field, const TensorView& view) {
  if (absl::Status status = CheckView(field, view); !status.ok()) return status;
  if (view.space != MemorySpace::kHost) {
    return FieldError(field, "lies in device memory (host memory is expected)");
  }
  return absl::OkStatus();
}

absl::Status CheckIntegers(absl::string_view field, const TensorView& view) {
  if (absl::Status status = CheckHostView(field, view); !status.ok()) {
    return status;
  }
  if (view.type == DataType::kInt32 || view.type == DataType::kInt64) {
    return absl::OkStatus();
  }
  return FieldError(field, absl::StrCat("datatype ", Name(view.type),
                                        " (expected INT32 or INT64)"));
}

std::string GivenShape(const AttentionProblem& problem,
                       const TensorView& tensor) {
  const Shape& shape = tensor.shape;
  if (!problem.tokens_first) return ShapeToString(shape);
  return ShapeToString({shape[2], shape[1], shape[3]});
}

absl::Status ZeroExtent(absl::string_view field, absl::string_view shape,
                        absl::string_view extent) {
  return FieldError(field, absl::StrCat("shape ", shape, " has ", extent,
                                        " (expected 1 or more)"));
}

// One without elements gets an address, which is never read from: kernels may
// count on from it, and nothing may be added to a null pointer.
TensorView Widen(const TensorView& view) {
  static constexpr std::byte kNoElements = {};
  TensorView wide = AddExtents(view, 4);
  if (wide.data == nullptr && absl::c_linear_search(wide.shape, 0)) {
    wide.data = &kNoElements;
  }
  return wide;
}

Shape Narrow(const Shape& four, int rank) {
  if (rank == 4) return four;
  Shape narrow = four;
  narrow.erase(narrow.begin() + 1);
  if (rank == 2) narrow.erase(narrow.begin());
  return narrow;
}

bool IsFloat32OrQueryType(DataType type, const ValidatedProblem& valid) {
  return type == DataType::kFloat32 || type == valid.query.type;
}

absl::Status ParameterTypeError(absl::string_view field, DataType type,
                                const ValidatedProblem& valid) {
  const std::string expected =
      valid.query.type == DataType::kFloat32
          ? "FP32"
          : absl::StrCat("FP32 or, as query, ", Name(valid.query.type));
  return FieldError(field, absl::StrCat("datatype ", Name(type), " (expected ",
                                        expected, ")"));
}

}  // namespace attention::internal
