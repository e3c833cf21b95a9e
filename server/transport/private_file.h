#ifndef ATTENTION_SERVER_TRANSPORT_PRIVATE_FILE_H_
#define ATTENTION_SERVER_TRANSPORT_PRIVATE_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "server/base/file_descriptor.h"

namespace attention::server {

/// A file in memory that only this process has, under a path: for libraries
/// that take nothing but paths. Its content is replaced as a whole.
class PrivateFile {
 public:
  /// Makes `content` the file's, for whoever opens the path from now on. Its
  /// time of modification, in whole seconds, is then another than before.
  /// RESOURCE_EXHAUSTED where there is no descriptor or no memory.
  absl::Status Replace(const std::string& content);

  /// The same for ever; after the first Replace().
  std::string path() const;

 private:
  FileDescriptor file_;
  int replaced_ = 0;  // times
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_TRANSPORT_PRIVATE_FILE_H_
