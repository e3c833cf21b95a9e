#ifndef ATTENTION_TESTS_SUPPORT_MODEL_FOLDERS_H_
#define ATTENTION_TESTS_SUPPORT_MODEL_FOLDERS_H_

#include <map>
#include <string>

#include "core/tensor.h"
#include "tests/support/temporary_folder.h"

namespace attention::test {

/// A model repository in a temporary directory, removed at the end.
class ModelFolders {
 public:
  const std::string& path() const { return folder_.path(); }

  /// Creates or replaces NAME/config.json and, where there are tensors,
  /// NAME/parameters.safetensors. Returns the folder's path.
  std::string Add(const std::string& name, const std::string& config,
                  const std::map<std::string, Tensor>& tensors = {});

  /// Removes a folder.
  void Remove(const std::string& name);

 private:
  const TemporaryFolder folder_;
};

}  // namespace attention::test

#endif  // ATTENTION_TESTS_SUPPORT_MODEL_FOLDERS_H_
