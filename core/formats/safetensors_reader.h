#ifndef ATTENTION_CORE_FORMATS_SAFETENSORS_READER_H_
#define ATTENTION_CORE_FORMATS_SAFETENSORS_READER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/formats/safetensors_header.h"
#include "core/tensor.h"

namespace attention {

/// A safetensors file of which the header has been read and checked, and whose
/// tensors are read when they are asked for: a file may be larger than memory,
/// and say so or not.
class SafetensorsReader {
 public:
  /// Fills `bytes` with those at `offset`, all of which the file should have.
  using Read =
      std::function<absl::Status(int64_t offset, absl::Span<std::byte> bytes)>;

  /// Of `size` bytes. INVALID_ARGUMENT as ParseSafetensors(), for all that the
  /// header can tell, and what `read` returns.
  static absl::StatusOr<SafetensorsReader> Open(int64_t size, Read read);
  /// Of a file, which stays open. The system's own reason where it cannot be
  /// opened; the message begins with the path.
  static absl::StatusOr<SafetensorsReader> OpenFile(const std::string& path);

  const SafetensorsHeader& header() const { return header_; }

  /// A tensor of the header. RESOURCE_EXHAUSTED where memory does not suffice,
  /// or what `read` returns.
  absl::StatusOr<Tensor> ReadTensor(const std::string& name) const;
  /// The bytes of a tensor of the header from its byte `offset` on, all of
  /// which it must have. What `read` returns.
  absl::Status ReadBytes(const std::string& name, int64_t offset,
                         absl::Span<std::byte> bytes) const;

 private:
  explicit SafetensorsReader(Read read) : read_(std::move(read)) {}

  absl::Status ReadHeader(int64_t size);

  Read read_;
  SafetensorsHeader header_;
  int64_t data_begin_ = 0;
};

}  // namespace attention

#endif  // ATTENTION_CORE_FORMATS_SAFETENSORS_READER_H_
