#include "tests/support/test_data.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

namespace attention::test {

std::string TestDataPath(const std::string& name) {
  return std::string(ATTENTION_TEST_DATA) + "/" + name;
}

std::vector<std::string> SafetensorsInTestData() {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator(ATTENTION_TEST_DATA, error)) {
    if (entry.path().extension() == ".safetensors") {
      names.push_back(entry.path().filename().string());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

absl::StatusOr<SafetensorsFile> ReadTestData(const std::string& name) {
  return ReadSafetensors(TestDataPath(name));
}

}  // namespace attention::test
