#ifndef ATTENTION_CORE_FORMATS_NPY_HEADER_H_
#define ATTENTION_CORE_FORMATS_NPY_HEADER_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/datatype.h"
#include "core/shape.h"

namespace attention {

/// As many extents as NumPy itself allows.
inline constexpr size_t kNpyLongestShape = 64;

/// What the dictionary at the head of a .npy file says. Row-major is implied.
struct NpyHeader {
  DataType type = DataType::kFloat32;
  Shape shape;
};

/// Reads the dictionary, a Python literal with the keys descr, fortran_order
/// and shape, each once: {'descr': '<f4', 'fortran_order': False, 'shape': (2,
/// 3), } INVALID_ARGUMENT, naming the key where one is at fault, for anything
/// else and for what a Tensor cannot hold: big-endian, structured and other
/// types, Fortran order, more than kNpyLongestShape extents.
absl::StatusOr<NpyHeader> ParseNpyHeader(absl::string_view text);

/// NumPy's name of a type, "<f4"; nothing for BF16.
std::optional<absl::string_view> NpyName(DataType type);

}  // namespace attention

#endif  // ATTENTION_CORE_FORMATS_NPY_HEADER_H_
