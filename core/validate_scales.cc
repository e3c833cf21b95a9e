#include <bit>
#include <cstring>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/validate_parts.h"

namespace attention::internal {
namespace {

bool IsScale(float scale) {
  return scale >= 0 && scale <= std::numeric_limits<float>::max();
}

float Load(const std::byte* address) {
  float scale;
  std::memcpy(&scale, address, sizeof(scale));
  return scale;
}

// Of scales side by side, many at once: their bits, as whole numbers, rise with
// them up to the largest, and are negative where they are. False for -0, too.
bool AreScales(const std::byte* first, int64_t count) {
  constexpr auto kLargest =
      std::bit_cast<int32_t>(std::numeric_limits<float>::max());
  int32_t negative_if_wrong = 0;
  for (int64_t n = 0; n < count; ++n) {
    int32_t bits;
    std::memcpy(&bits, first + n * sizeof(bits), sizeof(bits));
    negative_if_wrong |= bits | (kLargest - (bits & 0x7FFFFFFF));
  }
  return negative_if_wrong >= 0;
}

absl::Status CheckElements(absl::string_view field, const TensorView& scales) {
  if (AreDenseScales(scales)) return absl::OkStatus();
  for (int64_t b = 0; b < scales.shape[0]; ++b) {
    for (int64_t h = 0; h < scales.shape[1]; ++h) {
      const std::byte* element =
          scales.data + b * scales.strides[0] + h * scales.strides[1];
      for (int64_t n = 0; n < scales.shape[2]; ++n) {
        const float scale = Load(element);
        element += scales.strides[2];
        if (IsScale(scale)) continue;
        // Packed rows have no batch.
        const std::string entry =
            scales.shape[0] > 1 ? absl::StrCat(" of batch entry ", b) : "";
        return FieldError(
            field, absl::StrCat(scale, " for row ", n, " of head ", h, entry,
                                " (expected a finite number, 0 or more)"));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

bool AreDenseScales(const TensorView& scales) {
  if (scales.strides[2] != sizeof(float)) return false;
  for (int64_t b = 0; b < scales.shape[0]; ++b) {
    for (int64_t h = 0; h < scales.shape[1]; ++h) {
      const std::byte* first =
          scales.data + b * scales.strides[0] + h * scales.strides[1];
      if (!AreScales(first, scales.shape[2])) return false;
    }
  }
  return true;
}

absl::Status ReadScales(absl::string_view field, const TensorView& rows,
                        const std::optional<TensorView>& scales,
                        bool values_checked,
                        std::optional<TensorView>& result) {
  if (!IsScaledType(rows.type)) {
    if (!scales) return absl::OkStatus();
    return FieldError(field, absl::StrCat("was given beside ", Name(rows.type),
                                          ", which has none (leave it out)"));
  }
  if (!scales) {
    return FieldError(field, absl::StrCat("missing (each row of ",
                                          Name(rows.type), " has one)"));
  }
  if (absl::Status status = CheckHostView(field, *scales); !status.ok()) {
    return status;
  }
  if (scales->type != DataType::kFloat32) {
    return FieldError(field, absl::StrCat("datatype ", Name(scales->type),
                                          " (expected FP32)"));
  }
  Shape expected = rows.shape;
  expected.pop_back();
  if (scales->shape != expected) {
    return FieldError(
        field,
        absl::StrCat("shape ", ShapeToString(scales->shape), " (expected ",
                     ShapeToString(expected), ", one for each row)"));
  }
  result = AddExtents(*scales, 3);
  if (values_checked || ElementCount(expected).value_or(0) == 0) {
    return absl::OkStatus();
  }
  return CheckElements(field, WithoutRepeats(*result));
}

}  // namespace attention::internal
