#ifndef ATTENTION_TESTS_SUPPORT_TEMPORARY_FOLDER_H_
#define ATTENTION_TESTS_SUPPORT_TEMPORARY_FOLDER_H_

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

namespace attention::test {

/// A new folder with a name of its own, removed with all that is in it at the
/// end. Ends the process where it cannot be made.
class TemporaryFolder {
 public:
  TemporaryFolder() : path_(::testing::TempDir() + "attention.XXXXXX") {
    if (::mkdtemp(path_.data()) == nullptr) std::abort();
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace attention::test

#endif  // ATTENTION_TESTS_SUPPORT_TEMPORARY_FOLDER_H_
