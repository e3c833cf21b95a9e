#include "tests/support/model_folders.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "core/formats/file.h"
#include "core/formats/safetensors.h"
#include "tests/support/status_matchers.h"

namespace attention::test {

std::string ModelFolders::Add(const std::string& name,
                              const std::string& config,
                              const std::map<std::string, Tensor>& tensors) {
  std::string folder = path() + "/" + name;
  std::filesystem::create_directories(folder);
  EXPECT_THAT(WriteFile(folder + "/config.json", config), IsOk());
  if (!tensors.empty()) {
    EXPECT_THAT(WriteSafetensors(folder + "/parameters.safetensors",
                                 {.tensors = tensors, .metadata = {}}),
                IsOk());
  }
  return folder;
}

void ModelFolders::Remove(const std::string& name) {
  std::filesystem::remove_all(path() + "/" + name);
}

}  // namespace attention::test
