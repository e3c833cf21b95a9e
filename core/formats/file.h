#ifndef ATTENTION_CORE_FORMATS_FILE_H_
#define ATTENTION_CORE_FORMATS_FILE_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace attention {

/// A regular file that is open for reading.
class InputFile {
 public:
  /// The system's own reason otherwise (NOT_FOUND, PERMISSION_DENIED and so
  /// on), INVALID_ARGUMENT for a folder, pipe or device; the message begins
  /// with the path.
  static absl::StatusOr<InputFile> Open(const std::string& path);
  InputFile(InputFile&& other) noexcept
      : descriptor_(std::exchange(other.descriptor_, -1)), size_(other.size_) {}
  InputFile& operator=(InputFile&&) = delete;
  ~InputFile();

  /// Bytes that it had when it was opened.
  int64_t size() const { return size_; }
  /// Fills `bytes` with those at `offset`. The system's own reason where it
  /// cannot be read, OUT_OF_RANGE where it has become shorter.
  absl::Status ReadAt(int64_t offset, absl::Span<std::byte> bytes) const;

 private:
  InputFile(int descriptor, int64_t size)
      : descriptor_(descriptor), size_(size) {}

  int descriptor_;
  int64_t size_;
};

/// A file that is being written, from its beginning to its end.
class OutputFile {
 public:
  /// Creates or replaces it. The system's own reason where that fails; the
  /// message begins with the path, here and below.
  static absl::StatusOr<OutputFile> Create(std::string path);
  OutputFile(OutputFile&& other) noexcept
      : path_(std::move(other.path_)),
        descriptor_(std::exchange(other.descriptor_, -1)) {}
  OutputFile& operator=(OutputFile&&) = delete;
  /// Without Close() the file may be a part of what it should be.
  ~OutputFile();

  absl::Status Write(absl::Span<const std::byte> bytes);
  /// Returns when the disk has what was written.
  absl::Status Sync();
  /// To be called once, at the end: a full disk may be reported only here.
  absl::Status Close();

 private:
  OutputFile(std::string path, int descriptor)
      : path_(std::move(path)), descriptor_(descriptor) {}

  std::string path_;
  int descriptor_;
};

/// A whole regular file's bytes. What InputFile says otherwise,
/// INVALID_ARGUMENT where there are more than `most`, RESOURCE_EXHAUSTED where
/// memory does not suffice; the message begins with the path.
absl::StatusOr<std::string> ReadFile(
    const std::string& path,
    int64_t most = std::numeric_limits<int64_t>::max());

/// Creates or replaces a file. The system's own reason where that fails; the
/// message begins with the path. A write that fails half-way leaves a part.
absl::Status WriteFile(const std::string& path, absl::string_view contents);

}  // namespace attention

#endif  // ATTENTION_CORE_FORMATS_FILE_H_
