// A model's folder that is read while its files are still being written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>

#include "core/formats/file.h"
#include "server/models/model_repository.h"
#include "tests/support/model_folders.h"
#include "tests/support/status_matchers.h"

namespace attention::server {
namespace {

using ::attention::test::IsOk;
using ::testing::HasSubstr;

constexpr char kConfig[] = "config.json";
constexpr char kParameters[] = "parameters.safetensors";

class HalfWrittenModelTest : public testing::TestWithParam<const char*> {
 protected:
  HalfWrittenModelTest() {
    folder_ =
        folders_.Add("a",
                     R"({"scoring": "bilinear",
            "parameters": {"m": {"layout": "input_by_output"}}})",
                     {{"m", Tensor::FromFloats({2, 3}, {1, 2, 3, 4, 5, 6})}});
    repository_ = *ModelRepository::Open(folders_.path());
  }
  std::string PathOf(const char* file) const { return folder_ + "/" + file; }

  test::ModelFolders folders_;
  std::string folder_;
  std::unique_ptr<ModelRepository> repository_;
};

TEST_P(HalfWrittenModelTest, IsAnErrorThatNamesTheFileWhereverItIsCut) {
  const std::string path = PathOf(GetParam());
  const std::string whole = *ReadFile(path);
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    std::filesystem::resize_file(path, bytes);
    const absl::Status status = repository_->Load("a");
    EXPECT_FALSE(status.ok()) << bytes << " bytes";
    EXPECT_THAT(status.message(), HasSubstr(GetParam())) << bytes << " bytes";
    EXPECT_THAT(repository_->Find("a"), IsOk());  // what was there goes on
    ASSERT_THAT(WriteFile(path, whole), IsOk());
  }
  EXPECT_THAT(repository_->Load("a"), IsOk());
}

// A file that was made as large as it will be, and not yet filled.
TEST_P(HalfWrittenModelTest, IsAnErrorWhereTheRestIsZeros) {
  const std::string path = PathOf(GetParam());
  const std::string whole = *ReadFile(path);
  // Numbers may be zeros; all before them may not.
  const size_t head =
      std::string(GetParam()) == kConfig ? whole.size() - 1 : whole.size() - 24;
  for (size_t bytes = 0; bytes < head; bytes += 7) {
    std::filesystem::resize_file(path, bytes);
    std::filesystem::resize_file(path, whole.size());
    EXPECT_FALSE(repository_->Load("a").ok()) << bytes << " bytes";
    ASSERT_THAT(WriteFile(path, whole), IsOk());
  }
  EXPECT_THAT(repository_->Load("a"), IsOk());
}

INSTANTIATE_TEST_SUITE_P(All, HalfWrittenModelTest,
                         testing::Values(kConfig, kParameters),
                         [](const auto& file) {
                           return file.param == kConfig ? "Config"
                                                        : "Parameters";
                         });

}  // namespace
}  // namespace attention::server
