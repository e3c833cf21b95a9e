// The self check of a plugin in a process of its own: of the emulated device's
// plugin, which hangs or ends the process where the environment says so.

#include "core/cuda/child_check.h"

#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "core/engine.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace attention::cuda {
namespace {

using test::IsOk;
using test::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kHangsIn[] = "ATTENTION_EMULATED_HANGS_IN";
constexpr char kAbortsIn[] = "ATTENTION_EMULATED_ABORTS_IN";
constexpr char kWithoutGemm[] = "ATTENTION_EMULATED_WITHOUT_GEMM";

// Far more than a case takes, and far less than a test may.
constexpr auto kPatient = std::chrono::minutes(5);
// What a device that hangs in its first cases, which copy some bytes, is waited
// for. Where even that is too little on a busy machine, it is said likewise.
constexpr auto kImpatient = std::chrono::seconds(4);

class ChildCheckTest : public ::testing::Test {
 protected:
  ~ChildCheckTest() override {
    unsetenv(kHangsIn);
    unsetenv(kAbortsIn);
    unsetenv(kWithoutGemm);
  }
  static void Break(const char* how, const char* kernel) {
    setenv(how, kernel, /*overwrite=*/1);
  }
};

std::string MessageOf(const absl::Status& status) {
  return static_cast<std::string>(status.message());
}

TEST_F(ChildCheckTest, ADeviceThatAgreesPasses) {
  const ChildCheck checked = CheckInChild(ATTENTION_EMULATED_PLUGIN, kPatient);
  EXPECT_THAT(checked.status, IsOk());
  EXPECT_THAT(checked.without_wgmma, IsOk());
  EXPECT_THAT(checked.without_gemm, IsOk());
  EXPECT_EQ(checked.devices, "sm_90 (emulated)");
}

TEST_F(ChildCheckTest, AFaultOfAnotherKernelFails) {
  Break(kAbortsIn, "rearrange");
  const ChildCheck checked = CheckInChild(ATTENTION_EMULATED_PLUGIN, kPatient);
  EXPECT_THAT(checked.status,
              StatusIs(absl::StatusCode::kInternal,
                       HasSubstr("rearrange, units of 1: the check was ended "
                                 "by SIGABRT")));
  EXPECT_EQ(checked.devices, "sm_90 (emulated)");
}

// What only pages that stay on a device, and grow there, need.
TEST_F(ChildCheckTest, RowsForPagesThatStayAreChecked) {
  Break(kAbortsIn, "rearrange_entries");
  const ChildCheck checked = CheckInChild(ATTENTION_EMULATED_PLUGIN, kPatient);
  EXPECT_THAT(checked.status,
              StatusIs(absl::StatusCode::kInternal,
                       HasSubstr("kept pages, FP32 width 40: the check was "
                                 "ended by SIGABRT; without Hopper's")));
}

TEST_F(ChildCheckTest, ADeviceThatHangsFails) {
  Break(kHangsIn, "rearrange");
  const ChildCheck checked =
      CheckInChild(ATTENTION_EMULATED_PLUGIN, kImpatient);
  EXPECT_THAT(MessageOf(checked.status),
              HasSubstr("no answer within 4000 ms: the device hangs"));
}

// It would take as long once more.
TEST_F(ChildCheckTest, ADeviceThatFailsBeforeHoppersKernelsHasOneTry) {
  Break(kAbortsIn, "rearrange");
  const ChildCheck checked = CheckInChild(ATTENTION_EMULATED_PLUGIN, kPatient);
  EXPECT_THAT(MessageOf(checked.status), Not(HasSubstr("without Hopper's")));
}

TEST_F(ChildCheckTest, TellsThatThereIsNoCublas) {
  Break(kWithoutGemm, "");
  Break(kAbortsIn, "rearrange");  // soon, and after that
  const ChildCheck checked = CheckInChild(ATTENTION_EMULATED_PLUGIN, kPatient);
  EXPECT_THAT(checked.without_gemm, StatusIs(absl::StatusCode::kUnavailable,
                                             HasSubstr("emulated: no cuBLAS")));
}

TEST_F(ChildCheckTest, WithoutItsProgramThePluginIsNotUsed) {
  const ChildCheck checked = CheckInChild("/nowhere/plugin.so", kPatient);
  EXPECT_THAT(checked.status,
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("/nowhere/attention-cuda-check")));
}

TEST_F(ChildCheckTest, APluginThatDoesNotLoadIsForWhoeverOpensIt) {
  const std::string folder = ATTENTION_EMULATED_FOLDER;
  EXPECT_THAT(CheckInChild(folder + "/none.so", kPatient).status, IsOk());
}

std::unique_ptr<Engine> MakeEngine(const std::string& backend = "auto") {
  EngineOptions options;
  options.backend = backend;
  options.threads = 1;
  options.cuda_plugin = ATTENTION_EMULATED_PLUGIN;
  options.self_check_patience = kPatient;
  return Engine::Create(std::move(options)).value();
}

TEST_F(ChildCheckTest, AutoGoesOnWithoutTheKernelsThatFault) {
  Break(kAbortsIn, "attend_wgmma");
  const std::unique_ptr<Engine> engine = MakeEngine();
  EXPECT_EQ(engine->backends()[0]->name(), "cuda");
  ASSERT_EQ(engine->unused().size(), 1U);
  EXPECT_EQ(engine->unused()[0].name, "cuda's fp16_wgmma and bf16_wgmma");
  EXPECT_THAT(MessageOf(engine->unused()[0].reason),
              AllOf(HasSubstr("sm_90 (emulated)"),
                    HasSubstr("the check was ended by SIGABRT")));
}

// The log has what is not used.
TEST_F(ChildCheckTest, ABackendThatIsNamedTellsThatThereIsNoCublasUnchecked) {
  Break(kWithoutGemm, "");
  const std::unique_ptr<Engine> engine = MakeEngine("cuda");
  ASSERT_EQ(engine->unused().size(), 1U);
  EXPECT_EQ(engine->unused()[0].name, "cuda's cublas_gemm");
  EXPECT_EQ(MessageOf(engine->unused()[0].reason), "emulated: no cuBLAS");
}

TEST_F(ChildCheckTest, AutoGoesOnWithoutADeviceThatFaults) {
  Break(kAbortsIn, "rearrange");
  const std::unique_ptr<Engine> engine = MakeEngine();
  EXPECT_NE(engine->backends()[0]->name(), "cuda");
  ASSERT_EQ(engine->unused().size(), 1U);
  EXPECT_EQ(engine->unused()[0].name, "cuda");
  EXPECT_EQ(engine->unused()[0].reason.code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace attention::cuda
