#ifndef ATTENTION_CORE_FORMATS_FILE_H_
#define ATTENTION_CORE_FORMATS_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace attention {

/// A whole regular file's bytes. The system's own reason otherwise (NOT_FOUND,
/// PERMISSION_DENIED and so on), INVALID_ARGUMENT for a folder, pipe or device,
/// RESOURCE_EXHAUSTED where memory does not suffice; the message begins with
/// the path.
absl::StatusOr<std::string> ReadFile(const std::string& path);

/// Creates or replaces a file. The system's own reason where that fails; the
/// message begins with the path. A write that fails half-way leaves a part.
absl::Status WriteFile(const std::string& path, absl::string_view contents);

}  // namespace attention

#endif  // ATTENTION_CORE_FORMATS_FILE_H_
