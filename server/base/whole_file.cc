#include "server/base/whole_file.h"

#include <cerrno>
#include <fstream>
#include <sstream>

namespace attention::server {

std::optional<std::string> ReadWhole(const std::string& path) {
  errno = 0;
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();  // fails, where iterators would throw
  if (text.fail()) return std::nullopt;
  return text.str();
}

}  // namespace attention::server
