#ifndef ATTENTION_CORE_SHAPE_H_
#define ATTENTION_CORE_SHAPE_H_

#include <cstdint>
#include <string>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace attention {

/// Extents, outermost first. Four are stored without an allocation.
using Shape = absl::InlinedVector<int64_t, 4>;

/// "[2, 10, 3]", as error messages print a shape.
std::string ShapeToString(absl::Span<const int64_t> shape);

/// The product of the extents; 1 for an empty shape. INVALID_ARGUMENT (without
/// a field's name: the caller prefixes it) where an extent is negative, or
/// where the product of those that are not 0 times `element_size` passes 2^63 -
/// 1: a later 0 does not excuse it, so that no partial product overflows
/// either.
absl::StatusOr<int64_t> ElementCount(absl::Span<const int64_t> shape,
                                     int64_t element_size = 1);

}  // namespace attention

#endif  // ATTENTION_CORE_SHAPE_H_
