#ifndef ATTENTION_TESTS_SUPPORT_MODEL_FOLDERS_H_
#define ATTENTION_TESTS_SUPPORT_MODEL_FOLDERS_H_

#include <map>
#include <string>

#include "core/tensor.h"

namespace attention::test {

/// A model repository in a temporary directory, removed at the end.
class ModelFolders {
 public:
  ModelFolders();
  ~ModelFolders();
  ModelFolders(const ModelFolders&) = delete;
  ModelFolders& operator=(const ModelFolders&) = delete;

  const std::string& path() const { return path_; }

  /// Creates or replaces NAME/config.json and, where there are tensors,
  /// NAME/parameters.safetensors. Returns the folder's path.
  std::string Add(const std::string& name, const std::string& config,
                  const std::map<std::string, Tensor>& tensors = {});

  /// Removes a folder.
  void Remove(const std::string& name);

 private:
  std::string path_;
};

}  // namespace attention::test

#endif  // ATTENTION_TESTS_SUPPORT_MODEL_FOLDERS_H_
