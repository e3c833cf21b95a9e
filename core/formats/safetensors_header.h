#ifndef ATTENTION_CORE_FORMATS_SAFETENSORS_HEADER_H_
#define ATTENTION_CORE_FORMATS_SAFETENSORS_HEADER_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/datatype.h"
#include "core/shape.h"

namespace attention {

/// The header's name for the text metadata; no tensor can be called so.
inline constexpr char kSafetensorsMetadata[] = "__metadata__";

/// What the header says about one tensor.
struct SafetensorsEntry {
  DataType type = DataType::kFloat32;
  Shape shape;
  // Its bytes within the data that follow the header, as a half-open range.
  int64_t begin = 0;
  int64_t end = 0;
};

struct SafetensorsHeader {
  std::map<std::string, SafetensorsEntry> tensors;
  std::map<std::string, std::string> metadata;
};

/// Reads the header's JSON text. INVALID_ARGUMENT, naming the tensor where one
/// is at fault, for text that is not JSON or not of the documented form, a name
/// that comes twice, an unknown dtype, and integers that are negative or beyond
/// 2^63 - 1. Whether offsets and shapes fit each other is the caller's to
/// check.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(
    absl::string_view text);

/// All of a file that comes before its data: the header's length in 8 bytes,
/// and the header, padded to a multiple of 8 bytes. Bytes of names and metadata
/// that are not UTF-8 are replaced.
std::string SerializeSafetensorsHeader(const SafetensorsHeader& header);

}  // namespace attention

#endif  // ATTENTION_CORE_FORMATS_SAFETENSORS_HEADER_H_
