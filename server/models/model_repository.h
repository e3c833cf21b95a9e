#ifndef ATTENTION_SERVER_MODELS_MODEL_REPOSITORY_H_
#define ATTENTION_SERVER_MODELS_MODEL_REPOSITORY_H_

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/models/parameter_set.h"

namespace attention::server {

enum class ModelState : uint8_t { kReady, kUnavailable };

/// One line of the repository's index. Both texts are UTF-8, whatever folders
/// and files have in them.
struct ModelIndexEntry {
  /// A name that no set can have is escaped, as C does: "a\xff", "a\nb".
  std::string name;
  ModelState state;
  /// Why it is unavailable, at most 1 KiB; empty where it is ready.
  std::string reason;
};

/// The parameter sets of a server: one for each folder of a directory, named as
/// the folder is (parameter_set.h says what is in it). Safe for several threads
/// at once. A set in use outlives its unloading.
class ModelRepository {
 public:
  /// No directory, no sets: Find and Load know no name.
  ModelRepository() = default;

  /// Loads every folder of `directory`. One that is broken is logged and
  /// listed as unavailable, and the others are loaded all the same. Folders
  /// whose name begins with '.' are passed over. NOT_FOUND, PERMISSION_DENIED
  /// and so on where the directory itself cannot be read. `most_bytes` is what
  /// the parameters of one set may take.
  static absl::StatusOr<std::unique_ptr<ModelRepository>> Open(
      const std::string& directory,
      int64_t most_bytes = std::numeric_limits<int64_t>::max());

  ModelRepository(const ModelRepository&) = delete;
  ModelRepository& operator=(const ModelRepository&) = delete;

  /// Load() of every folder, and Unload() of what has none any more: what
  /// Open() would have found. The errors are Open()'s.
  absl::Status LoadAll();

  /// Reads a folder, anew where it is loaded already: requests that began with
  /// the old set end with it. Where that fails, a set that was ready stays so.
  /// INVALID_ARGUMENT for a name that no set can have, NOT_FOUND where there is
  /// no such folder, RESOURCE_EXHAUSTED where there is no memory for it, else
  /// the loading's own error with "model 'NAME': " before it.
  absl::Status Load(const std::string& name);

  /// Forgets a set. NOT_FOUND where none of that name is ready.
  absl::Status Unload(const std::string& name);

  /// Every folder and every loaded set, in order of their names; not a folder
  /// with a built-in model's name, which can be none. Reads the directory.
  std::vector<ModelIndexEntry> Index() const;

  /// The names of the sets that are ready, in order. Reads no file.
  std::vector<std::string> Ready() const;

  /// Holds a set for as long as the caller holds the pointer. NOT_FOUND, with
  /// the names of those that there are, where none of that name is ready.
  absl::StatusOr<std::shared_ptr<const ParameterSet>> Find(
      const std::string& name) const;

 private:
  struct Model {
    std::shared_ptr<const ParameterSet> set;  // none where it is unavailable
    std::string reason;
  };

  // The names of all folders that could be sets.
  absl::StatusOr<std::vector<std::string>> Folders() const;
  std::string FirstReady() const;  // mutex_ is held

  std::string directory_;
  int64_t most_bytes_ = 0;
  std::mutex loading_;  // one at a time, so that the last Load() is what counts
  mutable std::mutex mutex_;
  std::map<std::string, Model> models_;  // mutex_
};

/// A model's name: 1 to 128 letters, digits and _ - . that begin with a letter
/// or a digit, and none of a built-in model (scoring_names.h). INVALID_ARGUMENT
/// otherwise.
absl::Status CheckModelName(const std::string& name);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_MODELS_MODEL_REPOSITORY_H_
