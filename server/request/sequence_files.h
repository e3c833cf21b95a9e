#ifndef ATTENTION_SERVER_REQUEST_SEQUENCE_FILES_H_
#define ATTENTION_SERVER_REQUEST_SEQUENCE_FILES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/store/store.h"

/// Sequences of a store that are written to files and read from them
/// (core/store/sequence_file.h).
namespace attention::server {

/// A file, and what errors call it: where it lies may be nothing to callers.
struct SequenceFilePlace {
  std::string path;
  std::string shown;
};

/// Asked now and then while a file is written or read; where it is no OK, that
/// ends with it, and nothing is left of what was begun.
using GoOn = absl::FunctionRef<absl::Status()>;

/// Writes a sequence, as it is now, and gives the file's bytes. Errors of the
/// file begin with "file: ".
absl::StatusOr<int64_t> ExportSequence(store::Store& store,
                                       const std::string& owner,
                                       const std::string& name,
                                       const SequenceFilePlace& file,
                                       GoOn go_on);

struct ImportedSequence {
  std::string name;
  std::vector<int64_t> lengths;  // keys of each layer
};

/// Makes a sequence of a file; `wanted` says all but its form. While it is read
/// it can be seen, with as many keys as it has by then.
absl::StatusOr<ImportedSequence> ImportSequence(store::Store& store,
                                                const std::string& owner,
                                                const SequenceFilePlace& file,
                                                store::NewSequence wanted,
                                                GoOn go_on);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_REQUEST_SEQUENCE_FILES_H_
