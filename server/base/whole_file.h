#ifndef ATTENTION_SERVER_BASE_WHOLE_FILE_H_
#define ATTENTION_SERVER_BASE_WHOLE_FILE_H_

#include <optional>
#include <string>

namespace attention::server {

/// All bytes of a file, of a pipe, too. Nothing where it is empty, with errno
/// 0, or cannot be read, a folder for one, with the system's errno.
std::optional<std::string> ReadWhole(const std::string& path);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_BASE_WHOLE_FILE_H_
