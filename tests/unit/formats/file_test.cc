#include "core/formats/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>

#include "tests/support/temporary_folder.h"

namespace attention {
namespace {

using ::testing::StartsWith;

class FileTest : public testing::Test {
 protected:
  std::string ScratchPath(const std::string& name) const {
    return folder_.path() + "/" + name;
  }

 private:
  const test::TemporaryFolder folder_;
};

TEST_F(FileTest, ReadsWhatWasWritten) {
  const std::string path = ScratchPath("round_trip");
  const std::string contents("two\nlines\0and a NUL", 19);
  ASSERT_EQ(WriteFile(path, contents), absl::OkStatus());
  const absl::StatusOr<std::string> read = ReadFile(path);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, contents);
}

TEST_F(FileTest, WritingReplacesALongerFile) {
  const std::string path = ScratchPath("replaced");
  ASSERT_EQ(WriteFile(path, "a long text"), absl::OkStatus());
  ASSERT_EQ(WriteFile(path, ""), absl::OkStatus());
  EXPECT_EQ(ReadFile(path).value(), "");
}

TEST_F(FileTest, AMissingFileIsNotFoundByItsPath) {
  const std::string path = ScratchPath("nowhere/at/all");
  const absl::Status read = ReadFile(path).status();
  EXPECT_EQ(read.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(read.message()), StartsWith(path));
  const absl::Status written = WriteFile(path, "x");
  EXPECT_EQ(written.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(written.message()), StartsWith(path));
}

TEST_F(FileTest, AFolderIsNotAFile) {
  const std::string path = testing::TempDir();
  const absl::Status read = ReadFile(path).status();
  EXPECT_EQ(read.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(read.message()), StartsWith(path));
  EXPECT_FALSE(WriteFile(path, "x").ok());
}

TEST_F(FileTest, APipeIsRefusedWithoutWaitingForAWriter) {
  const std::string path = ScratchPath("pipe");
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(ReadFile(path).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(FileTest, AFullDeviceIsAnError) {
  const absl::Status written = WriteFile("/dev/full", "x");
  EXPECT_FALSE(written.ok());
  EXPECT_THAT(std::string(written.message()), StartsWith("/dev/full"));
}

}  // namespace
}  // namespace attention
