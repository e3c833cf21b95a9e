// attention-server where there is too little: of memory, of threads.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/service/requests.h"
#include "tests/service/running_server.h"
#include "tests/service/wire_client.h"
#include "tests/support/child_process.h"

namespace attention::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Both are of util-linux, which Debian always has.
constexpr char kPrlimit[] = "/usr/bin/prlimit";
constexpr char kSetpriv[] = "/usr/bin/setpriv";

struct Ended {
  int code;
  std::string text;
};

Ended RunToItsEnd(const std::string& program,
                  const std::vector<std::string>& arguments) {
  ChildProcess child(program, arguments);
  std::string text = child.ReadAll();
  return {child.Wait(), std::move(text)};
}

// The server, given so many threads and processes, itself included. Root is not
// limited, so it becomes somebody else first.
Ended RunWithThreads(int most, const std::string& format = "text") {
  // By a number, because that somebody may not be let into the build's folder.
  const int binary = open(ATTENTION_SERVER_BINARY, O_RDONLY);
  std::vector<std::string> words;
  if (geteuid() == 0) {
    words = {kSetpriv, "--reuid=65532", "--regid=65532", "--clear-groups"};
  }
  for (const std::string& word :
       {std::string(kPrlimit), absl::StrCat("--nproc=", most, ":", most),
        absl::StrCat("/proc/self/fd/", binary), std::string("--grpc-port=0"),
        std::string("--http-port=0"), absl::StrCat("--log-format=", format)}) {
    words.push_back(word);
  }
  const std::string program = words.front();
  words.erase(words.begin());
  Ended ended = RunToItsEnd(program, words);
  close(binary);
  return ended;
}

TEST(ScarcityTest, WithoutAddressSpaceItSaysSoAndEndsWithExitCodeOne) {
  const Ended ended =
      RunToItsEnd(kPrlimit, {"--as=104857600", ATTENTION_SERVER_BINARY,
                             "--grpc-port", "0", "--http-port", "0"});
  EXPECT_EQ(ended.code, 1) << ended.text;
  EXPECT_THAT(ended.text, AllOf(HasSubstr("attention-server: "),
                                HasSubstr("102400 KiB of address space")));
}

TEST(ScarcityTest, WithFewThreadsItSaysSoAndEndsWithExitCodeOne) {
  const Ended ended = RunWithThreads(8);
  EXPECT_EQ(ended.code, 1) << ended.text;
  EXPECT_THAT(ended.text, AllOf(HasSubstr("attention-server: "),
                                HasSubstr("8 processes and threads")));
}

TEST(ScarcityTest, WithoutAnyThreadItSaysSoAndEndsWithExitCodeOne) {
  const Ended ended = RunWithThreads(1);
  EXPECT_EQ(ended.code, 1) << ended.text;
  EXPECT_THAT(ended.text,
              AllOf(HasSubstr("attention-server: "), HasSubstr("thread")));
}

TEST(ScarcityTest, SaysSoInJsonWhereThatIsWanted) {
  for (const int threads : {1, 8}) {
    const Ended ended = RunWithThreads(threads, "json");
    EXPECT_EQ(ended.code, 1) << ended.text;
    EXPECT_THAT(ended.text, HasSubstr("\"level\":\"critical\",\"message\":\""));
  }
}

// Enough for the server, and not for LargeReplyRequest()'s reply.
constexpr char kTooLittleForAReply[] = "--as=335544320";  // 320 MiB

// A reply of 244 MiB.
v1::AttendRequest LargeReplyRequest() {
  v1::AttendRequest request;
  *request.mutable_query() = Filled(v1::DATA_TYPE_FP32, {8000, 1}, 1);
  v1::KeyValueTensors& key_value = *request.mutable_key_value();
  *key_value.mutable_key() = Filled(v1::DATA_TYPE_FP32, {8000, 1}, 1);
  *key_value.mutable_value() = Filled(v1::DATA_TYPE_FP32, {8000, 1}, 1);
  request.set_return_weights(true);
  return request;
}

TEST(ScarcityTest, MemoryThatCannotBeHadEndsTheRequestAndNotTheServer) {
  // The memory limit would refuse it before.
  const RunningServer server =
      Launch({"--memory-limit", "2GiB"}, {kPrlimit, kTooLittleForAReply});
  ASSERT_NE(server.address, "") << server.process->ReadAll();
  WireClient client(server.address);
  for (int i = 0; i < 5; ++i) {
    const absl::Status status = client.Attend(LargeReplyRequest()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("no memory"));
    ExpectGoodReply(client.Attend(GoodRequest()));
  }
  server.process->Signal(SIGTERM);
  EXPECT_EQ(server.process->Wait(), 0);
}

// What is admitted follows from what there is: nothing is tried that fails.
TEST(ScarcityTest, TheMemoryLimitFollowsTheAddressSpace) {
  const RunningServer server = Launch({}, {kPrlimit, kTooLittleForAReply});
  ASSERT_NE(server.address, "") << server.process->ReadAll();
  WireClient client(server.address);
  const absl::Status status = client.Attend(LargeReplyRequest()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("never fits"));
  ExpectGoodReply(client.Attend(GoodRequest()));
}

}  // namespace
}  // namespace attention::test
