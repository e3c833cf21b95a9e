#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "tests/service/faulty_server.h"
#include "tests/service/sequences_fixture.h"
#include "tests/service/wire_client.h"

namespace attention::test {
namespace {

using ::testing::HasSubstr;

// A server that has begun to write a file onto a disk that hangs.
class HangingDiskTest : public FaultyServerTest {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(
        Start({"--resident-folder", folder_.path(), "--drain-time", "100ms"}));
    ASSERT_TRUE(client_
                    ->Call(kService + "Create",
                           CreateRequest({"s"}).SerializeAsString())
                    .ok());
    plan().syncs.fail = 1;
    hanging_ = StartExport();
    const auto late = std::chrono::steady_clock::now() + kPatience;
    while (plan().syncs.failed == 0) {
      ASSERT_LT(std::chrono::steady_clock::now(), late);
      std::this_thread::yield();
    }
  }

  std::unique_ptr<PendingCall> StartExport(
      std::chrono::milliseconds timeout = kPatience) {
    v1::ExportSequenceRequest request;
    request.set_name("s");
    request.set_file("s.safetensors");
    return client_->Start(kService + "Export", request.SerializeAsString(),
                          timeout);
  }

  std::unique_ptr<PendingCall> hanging_;
};

// A drain waits for what writes a file, up to a time.
TEST_F(HangingDiskTest, DoesNotKeepTheServerFromEnding) {
  server_.process->Signal(SIGTERM);
  EXPECT_EQ(server_.process->Wait(), 1);
  EXPECT_THAT(server_.process->ReadAll(),
              HasSubstr("attention-server: a part of the server has not ended "
                        "in time"));
  EXPECT_FALSE(hanging_->Wait().ok());
}

TEST_F(HangingDiskTest, CallsThatAreCancelledLeaveTheirPlacesToOthers) {
  std::vector<std::unique_ptr<PendingCall>> calls(64);
  for (auto& call : calls) call = StartExport();
  // All have arrived when a call that comes after them is answered.
  const absl::Status refused = StartExport()->Wait().status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("32 calls of this caller wait for it"));
  calls.clear();  // which cancels them
  const auto late = std::chrono::steady_clock::now() + kPatience;
  absl::Status status;
  do {  // until the server knows that they are cancelled
    ASSERT_LT(std::chrono::steady_clock::now(), late) << status;
    status = StartExport(std::chrono::seconds(1))->Wait().status();
  } while (absl::IsResourceExhausted(status));
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
}

}  // namespace
}  // namespace attention::test
