#include "core/cuda/loader.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace attention::cuda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string MessageOf(const absl::StatusOr<Devices>& devices) {
  return static_cast<std::string>(devices.status().message());
}

TEST(LoaderTest, AFileThatIsNotThereIsNotFound) {
  EXPECT_TRUE(
      absl::IsNotFound(OpenPlugin("/nowhere/libattention_cuda.so").status()));
}

TEST(LoaderTest, AFileThatIsNoLibraryDoesNotLoad) {
  const auto devices = OpenPlugin("/proc/self/status");
  EXPECT_TRUE(absl::IsFailedPrecondition(devices.status()));
  EXPECT_THAT(MessageOf(devices), HasSubstr("does not load"));
}

TEST(LoaderTest, ALibraryThatNeedsAMissingOneNamesIt) {
  const auto devices = OpenPlugin(ATTENTION_PLUGIN_WITHOUT_LIBRARY);
  EXPECT_TRUE(absl::IsFailedPrecondition(devices.status()));
  EXPECT_THAT(MessageOf(devices),
              AllOf(HasSubstr("does not load"), HasSubstr("libcublas_absent")));
}

TEST(LoaderTest, AnotherLibraryIsNoPlugin) {
  const auto devices = OpenPlugin(ATTENTION_OTHER_LIBRARY);
  EXPECT_TRUE(absl::IsFailedPrecondition(devices.status()));
  EXPECT_THAT(MessageOf(devices), HasSubstr("is no CUDA plugin"));
}

TEST(LoaderTest, APluginOfAnotherBuildIsRefused) {
  const auto devices = OpenPlugin(ATTENTION_OLD_PLUGIN);
  EXPECT_TRUE(absl::IsFailedPrecondition(devices.status()));
  EXPECT_THAT(MessageOf(devices), AllOf(HasSubstr("is of build 0.0.1-old"),
                                        HasSubstr("the program of build")));
}

// Beside a program that has none, why is said: of the build, or of the machine.
TEST(LoaderTest, WhyThereIsNoPluginIsSaid) {
  const absl::StatusOr<std::string> plugin = FindPlugin();
  if (plugin.ok()) return;
  EXPECT_THAT(static_cast<std::string>(plugin.status().message()),
#ifdef ATTENTION_PLUGIN
              ::testing::AnyOf(HasSubstr("no NVIDIA driver"),
                               HasSubstr("the plugin was not built"))
#else
              HasSubstr("this build has no CUDA: ")
#endif
  );
}

#ifdef ATTENTION_PLUGIN
TEST(LoaderTest, ThePluginOfThisBuildLoadsAndSaysWhatDevicesThereAre) {
  const auto devices = OpenPlugin(ATTENTION_PLUGIN);
  if (devices.ok()) {
    ASSERT_FALSE(devices->empty());
    EXPECT_NE((*devices)[0]->properties().name, "");
    return;
  }
  EXPECT_TRUE(absl::IsUnavailable(devices.status())) << devices.status();
  EXPECT_THAT(MessageOf(devices), HasSubstr("no CUDA device"));
}
#endif

}  // namespace
}  // namespace attention::cuda
