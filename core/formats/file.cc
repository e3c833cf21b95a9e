#include "core/formats/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <new>
#include <stdexcept>

#include "absl/strings/str_cat.h"

namespace attention {
namespace {

absl::Status ErrnoStatus(const std::string& path, absl::string_view doing) {
  return absl::ErrnoToStatus(errno, absl::StrCat(path, ": ", doing));
}

absl::Status OutOfMemory(const std::string& path, int64_t size) {
  return absl::ResourceExhaustedError(
      absl::StrCat(path, ": no memory for its ", size, " bytes"));
}

// The standard library reports a failed allocation by throwing; this is where
// that ends.
absl::Status Resize(const std::string& path, size_t size, std::string& text) {
  try {
    text.resize(size);
  } catch (const std::bad_alloc&) {
    return OutOfMemory(path, static_cast<int64_t>(size));
  } catch (const std::length_error&) {
    return OutOfMemory(path, static_cast<int64_t>(size));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<InputFile> InputFile::Open(const std::string& path) {
  // Without O_NONBLOCK, opening a pipe that nobody writes to would wait for
  // ever.
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return ErrnoStatus(path, "cannot be opened");
  struct stat info = {};
  const int examined = fstat(descriptor, &info);
  InputFile file(descriptor, info.st_size);
  if (examined != 0) return ErrnoStatus(path, "cannot be examined");
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": is not a regular file"));
  }
  return file;
}

InputFile::~InputFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

absl::Status InputFile::ReadAt(int64_t offset,
                               absl::Span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t count =
        pread(descriptor_, bytes.data(), bytes.size(), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return absl::ErrnoToStatus(errno, "cannot be read");
    if (count == 0) {
      return absl::OutOfRangeError("somebody shortened it meanwhile");
    }
    bytes.remove_prefix(static_cast<size_t>(count));
    offset += count;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t most) {
  const absl::StatusOr<InputFile> file = InputFile::Open(path);
  if (!file.ok()) return file.status();
  if (file->size() > most) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": has ", file->size(), " bytes (expected at most ", most, ")"));
  }
  std::string contents;
  absl::Status status =
      Resize(path, static_cast<size_t>(file->size()), contents);
  if (!status.ok()) return status;
  status = file->ReadAt(
      0, {reinterpret_cast<std::byte*>(contents.data()), contents.size()});
  if (status.ok()) return contents;
  return absl::Status(status.code(),
                      absl::StrCat(path, ": ", status.message()));
}

absl::StatusOr<OutputFile> OutputFile::Create(std::string path) {
  const int file =
      open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) return ErrnoStatus(path, "cannot be opened for writing");
  return OutputFile(std::move(path), file);
}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

absl::Status OutputFile::Write(absl::Span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = write(descriptor_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return ErrnoStatus(path_, "cannot be written");
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  return absl::OkStatus();
}

absl::Status OutputFile::Sync() {
  while (fsync(descriptor_) != 0) {
    if (errno != EINTR) return ErrnoStatus(path_, "cannot be written");
  }
  return absl::OkStatus();
}

absl::Status OutputFile::Close() {
  // Network file systems report a full disk only here.
  if (close(std::exchange(descriptor_, -1)) != 0) {
    return ErrnoStatus(path_, "cannot be written");
  }
  return absl::OkStatus();
}

absl::Status WriteFile(const std::string& path, absl::string_view contents) {
  absl::StatusOr<OutputFile> file = OutputFile::Create(path);
  if (!file.ok()) return file.status();
  absl::Status status = file->Write(
      {reinterpret_cast<const std::byte*>(contents.data()), contents.size()});
  if (!status.ok()) return status;
  return file->Close();
}

}  // namespace attention
