// What attention-server holds of the machine's memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/service/http_caller.h"
#include "tests/service/http_infer.h"
#include "tests/service/infer_requests.h"
#include "tests/service/requests.h"
#include "tests/service/running_server.h"
#include "tests/service/wire_client.h"

namespace attention::test {
namespace {

// A number of /proc/PID/status, which has it in KiB.
int64_t Mebibytes(int process, const std::string& name) {
  std::ifstream status(absl::StrCat("/proc/", process, "/status"));
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(name + ":", 0) == 0) {
      return std::stoll(line.substr(name.size() + 1)) >> 10;
    }
  }
  ADD_FAILURE() << "no " << name;
  return 0;
}

// How often it had to have a page of memory made ready (proc(5)).
int64_t PageFaults(int process) {
  std::ifstream file(absl::StrCat("/proc/", process, "/stat"));
  std::string field;
  std::getline(file, field, ')');  // number and name
  for (int i = 3; i <= 10; ++i) file >> field;
  return std::stoll(field);
}

// A message of 64 MiB and a reply of 16.
std::string LargeMessage() {
  v1::AttendRequest request;
  constexpr int64_t kWidth = 4 << 20;
  *request.mutable_query() = Filled(v1::DATA_TYPE_FP32, {1, 1}, 1);
  v1::KeyValueTensors& key_value = *request.mutable_key_value();
  *key_value.mutable_key() = Filled(v1::DATA_TYPE_FP32, {4, 1}, 1);
  *key_value.mutable_value() = Filled(v1::DATA_TYPE_FP32, {4, kWidth}, 1);
  return request.SerializeAsString();
}

TEST(MemoryTest, IsGivenBackWhenAllIsQuiet) {
  // In place of thirty seconds.
  ::setenv("MALLOC_CONF", "dirty_decay_ms:500", /*overwrite=*/1);
  // Room for all of them in one caller's share.
  const RunningServer server = Launch({"--memory-limit", "16GiB"});
  ::unsetenv("MALLOC_CONF");
  ASSERT_NE(server.address, "");
  WireClient client(server.address);
  const std::string message = LargeMessage();
  std::vector<std::unique_ptr<PendingCall>> calls;
  calls.reserve(6);
  for (int i = 0; i < 6; ++i) calls.push_back(client.Start(kAttend, message));
  for (const auto& call : calls) {
    const auto reply = call->Wait();
    EXPECT_TRUE(reply.ok()) << reply.status();
  }
  const int process = server.process->pid();
  EXPECT_GT(Mebibytes(process, "VmHWM"), 160);
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(3);
  int64_t resident = Mebibytes(process, "VmRSS");
  while (resident > 80 && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    resident = Mebibytes(process, "VmRSS");
  }
  EXPECT_LE(resident, 80);
}

TEST(MemoryTest, OfLargeMessagesIsUsedAgain) {
  const RunningServer server = Launch({"--memory-limit", "16GiB"});
  ASSERT_NE(server.address, "");
  WireClient client(server.address);
  v1::AttendRequest request;  // of 16 MiB, as its reply
  *request.mutable_query() = Filled(v1::DATA_TYPE_FP32, {65536, 64}, 1);
  v1::KeyValueTensors& key_value = *request.mutable_key_value();
  *key_value.mutable_key() = Filled(v1::DATA_TYPE_FP32, {8, 64}, 1);
  *key_value.mutable_value() = Filled(v1::DATA_TYPE_FP32, {8, 64}, 1);
  const std::string message = request.SerializeAsString();
  constexpr int kCalls = 10;
  int64_t before = 0;
  for (int i = -kCalls; i < kCalls; ++i) {
    if (i == 0) before = PageFaults(server.process->pid());
    const auto reply = client.Call(kAttend, message);
    EXPECT_TRUE(reply.ok()) << reply.status();
  }
  const int64_t faults = PageFaults(server.process->pid()) - before;
  // Request and reply have 8192 pages; gRPC reads into small blocks.
  EXPECT_LT(faults / kCalls, 4096);
}

TEST(MemoryTest, ConnectionsThatWaitKeepNoRoomForBodies) {
  ::setenv("MALLOC_CONF", "dirty_decay_ms:0", /*overwrite=*/1);
  const RunningServer server = Launch();
  ::unsetenv("MALLOC_CONF");
  ASSERT_NE(server.http_address, "");
  const std::string body(60 << 10, 'x');
  std::vector<std::unique_ptr<HttpCaller>> callers;
  const auto call = [&] {
    callers.push_back(std::make_unique<HttpCaller>(server.http_address));
    callers.back()->Send(absl::StrCat(
        "POST ", kInferPath, " HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: ",
        body.size(), "\r\n\r\n", body));
    EXPECT_EQ(HttpStatus(callers.back()->Read("}\n")), 400);
  };
  for (int i = 0; i < 40; ++i) call();
  const int64_t before = Mebibytes(server.process->pid(), "VmRSS");
  for (int i = 0; i < 400; ++i) call();
  const std::string page =
      HttpBody(HttpAnswer(server.http_address, "/metrics"));
  EXPECT_THAT(page, testing::HasSubstr(
                        "attention_connections{protocol=\"http\"} 441\n"));
  // 16 KiB for each; each took 64.
  EXPECT_LE(Mebibytes(server.process->pid(), "VmRSS"), before + 6);
}

// 48 MiB of lengths that are 384 MiB in memory, for no queries at all.
TEST(MemoryTest, TypedContentsAreCountedAsLargeAsTheyBecome) {
  constexpr int64_t kLengths = 48 << 20;
  inference::ModelInferRequest request;
  request.set_model_name(kDotProduct);
  const auto add = [&request](const std::string& name, const std::string& type,
                              const std::vector<int64_t>& shape) {
    auto* input = request.add_inputs();
    input->set_name(name);
    input->set_datatype(type);
    input->mutable_shape()->Assign(shape.begin(), shape.end());
    return input->mutable_contents();
  };
  for (const char* name : {"query", "key", "value"}) {
    add(name, "FP32", {kLengths, 0, 1});
  }
  add("valid_lens", "INT64", {kLengths})
      ->mutable_int64_contents()
      ->Resize(static_cast<int>(kLengths), 0);
  const std::string message = request.SerializeAsString();
  const RunningServer server = Launch({"--memory-limit", "256MiB"});
  ASSERT_NE(server.address, "");
  WireClient client(server.address);
  const auto reply = client.Call(kModelInfer, message);
  EXPECT_EQ(reply.status().code(), absl::StatusCode::kResourceExhausted)
      << reply.status();
  EXPECT_THAT(std::string(reply.status().message()),
              testing::HasSubstr("never fits"));
  EXPECT_LT(Mebibytes(server.process->pid(), "VmHWM"), 256);
  ExpectGoodReply(client.Attend(GoodRequest()));
}

}  // namespace
}  // namespace attention::test
