#ifndef ATTENTION_CORE_FORMATS_SAFETENSORS_H_
#define ATTENTION_CORE_FORMATS_SAFETENSORS_H_

#include <cstddef>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/tensor.h"

namespace attention {

/// What a safetensors file holds: named tensors and text metadata
/// (https://github.com/huggingface/safetensors, "Format").
struct SafetensorsFile {
  std::map<std::string, Tensor> tensors;
  std::map<std::string, std::string> metadata;
};

/// Parses a whole file's bytes. INVALID_ARGUMENT, naming the tensor where one
/// is at fault, for anything the format does not allow: a header that is longer
/// than the file or 100 MB, not JSON, or has a name twice; an unknown dtype;
/// negative or overflowing shapes; offsets that overlap, leave holes, run past
/// the end, or do not fit shape and dtype.
absl::StatusOr<SafetensorsFile> ParseSafetensors(
    absl::Span<const std::byte> bytes);

/// The inverse. Tensors are laid out by element size, largest first, and then
/// in order of their names, so that each is aligned for readers that map the
/// file. Names and metadata must be UTF-8 (other bytes are replaced), and no
/// tensor may be called "__metadata__", the format's own name for the metadata.
std::string SerializeSafetensors(const SafetensorsFile& file);

/// The same from and to a path. NOT_FOUND, PERMISSION_DENIED and so on where
/// the file cannot be opened or written, INVALID_ARGUMENT for a tensor that is
/// called
/// "__metadata__"; the message begins with the path.
absl::StatusOr<SafetensorsFile> ReadSafetensors(const std::string& path);
absl::Status WriteSafetensors(const std::string& path,
                              const SafetensorsFile& file);

}  // namespace attention

#endif  // ATTENTION_CORE_FORMATS_SAFETENSORS_H_
