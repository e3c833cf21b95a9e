#include "core/shape.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace attention {

std::string ShapeToString(absl::Span<const int64_t> shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

absl::StatusOr<int64_t> ElementCount(absl::Span<const int64_t> shape,
                                     int64_t element_size) {
  bool has_zero = false;
  int64_t bytes = element_size;
  for (const int64_t extent : shape) {
    if (extent < 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "shape ", ShapeToString(shape), " has a negative extent"));
    }
    if (extent == 0) {
      has_zero = true;
    } else if (__builtin_mul_overflow(bytes, extent, &bytes)) {
      return absl::InvalidArgumentError(
          absl::StrCat("shape ", ShapeToString(shape),
                       " has extents whose product passes 2^63 - 1 bytes"));
    }
  }
  return has_zero ? 0 : bytes / element_size;
}

}  // namespace attention
