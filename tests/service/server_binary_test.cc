// attention-server itself: its options, what it prints, how it ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/service/gated_server.h"
#include "tests/service/requests.h"
#include "tests/service/running_server.h"
#include "tests/service/wire_client.h"
#include "tests/support/child_process.h"
#include "tests/support/temporary_folder.h"

namespace attention::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class StopSignalTest : public testing::TestWithParam<int> {};

TEST_P(StopSignalTest, EndsAServerThatHasAnsweredWithExitCodeZero) {
  RunningServer server = Launch();
  ASSERT_THAT(server.address, HasSubstr("127.0.0.1:")) << server.line;
  WireClient client(server.address);
  ExpectGoodReply(client.Attend(GoodRequest()));
  server.process->Signal(GetParam());
  EXPECT_EQ(server.process->Wait(), 0);
}

INSTANTIATE_TEST_SUITE_P(All, StopSignalTest, testing::Values(SIGTERM, SIGINT),
                         [](const auto& test) {
                           return test.param == SIGTERM ? "Sigterm" : "Sigint";
                         });

TEST(ServerBinaryTest, SaysInOneLineWhatItListensOnAndRunsOn) {
  const RunningServer server = Launch({"--worker-threads", "2"});
  EXPECT_THAT(server.line,
              AllOf(HasSubstr("reference"), HasSubstr("2 worker threads")));
}

// A processor that this process may run on.
int AnyProcessor() {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0) {
    for (int i = 0; i < CPU_SETSIZE; ++i) {
      if (CPU_ISSET(i, &allowed)) return i;
    }
  }
  return 0;
}

TEST(ServerBinaryTest, HasAThreadForEachProcessorThatItMayRunOn) {
  const RunningServer server = Launch(
      {}, {"/usr/bin/taskset", "--cpu-list", absl::StrCat(AnyProcessor())});
  EXPECT_THAT(server.line, HasSubstr("1 worker thread,"));
}

TEST(ServerBinaryTest, WritesJsonLinesWhenAsked) {
  const RunningServer server = Launch({"--log-format", "json"});
  EXPECT_EQ(server.line.front(), '{');
  EXPECT_EQ(server.line.back(), '}');
}

TEST(ServerBinaryTest, HelpTeachesEveryOption) {
  ChildProcess help(ATTENTION_SERVER_BINARY, {"--help"});
  const std::string text = help.ReadAll();
  EXPECT_EQ(help.Wait(), 0);
  for (const char* option : {"--grpc-address",
                             "--grpc-port",
                             "--grpc-unix-socket",
                             "--http",
                             "--http-address",
                             "--http-port",
                             "8002",
                             "--worker-threads",
                             "--backend",
                             "--cuda-memory-limit",
                             "--max-request-bytes",
                             "--max-response-bytes",
                             "--max-requests-in-flight",
                             "--memory-limit",
                             "--max-stream-requests-in-flight",
                             "--drain-time",
                             "--log-level",
                             "--log-format",
                             "--config",
                             "127.0.0.1",
                             "8001",
                             "256MiB"}) {
    EXPECT_THAT(text, HasSubstr(option));
  }
}

TEST(ServerBinaryTest, ATakenPortEndsItWithExitCodeOne) {
  const auto first = StartServer();
  ChildProcess second(
      ATTENTION_SERVER_BINARY,
      {"--grpc-port", absl::StrCat(first->port()), "--http-port", "0"});
  const std::string text = second.ReadAll();
  EXPECT_EQ(second.Wait(), 1);
  EXPECT_THAT(text, HasSubstr(first->address()));
}

// It may come: whoever starts servers again waits for it.
TEST(ServerBinaryTest, AMissingCertificateEndsItWithExitCodeOne) {
  ChildProcess server(ATTENTION_SERVER_BINARY,
                      {"--tls-certificate", "/nonexistent", "--tls-key",
                       "/nonexistent", "--grpc-port", "0", "--http-port", "0"});
  EXPECT_THAT(server.ReadAll(), HasSubstr("--tls-certificate"));
  EXPECT_EQ(server.Wait(), 1);
}

TEST(ServerBinaryTest, WritesItsAddressWhenReadyAlthoughTheLogIsOff) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/ready";
  const ChildProcess server(ATTENTION_SERVER_BINARY,
                            {"--log-level", "off", "--ready-file", path,
                             "--grpc-port", "0", "--http=false"});
  std::string address;
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!std::getline(std::ifstream(path), address) &&
         std::chrono::steady_clock::now() < end) {
    std::this_thread::yield();
  }
  WireClient client(address);
  ExpectGoodReply(client.Attend(GoodRequest()));
}

TEST(ServerBinaryTest, NoReadyFileIsLeftOfAnEarlierServer) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/ready";
  std::ofstream(path) << "127.0.0.1:1\n";
  const auto first = StartServer();
  ChildProcess second(ATTENTION_SERVER_BINARY,
                      {"--ready-file", path, "--grpc-port",
                       absl::StrCat(first->port()), "--http=false"});
  EXPECT_EQ(second.Wait(), 1);
  EXPECT_FALSE(std::ifstream(path).is_open());
}

TEST(ServerBinaryTest, AReadyFileThatCannotBeWrittenEndsItAtOnce) {
  const TemporaryFolder folder;
  const std::string socket = folder.path() + "/socket";
  ChildProcess server(
      ATTENTION_SERVER_BINARY,
      {"--ready-file", "/sys/ready", "--grpc-port", "0", "--http=false",
       "--grpc-unix-socket", socket, "--drain-delay", "1h"});
  EXPECT_THAT(server.ReadAll(), HasSubstr("--ready-file: '/sys/ready'"));
  EXPECT_EQ(server.Wait(), 1);
  EXPECT_FALSE(std::filesystem::exists(socket));
}

TEST(ServerBinaryTest, NothingIsLeftOfAReadyFileThatGetsNoName) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/ready";
  std::filesystem::create_directory(path);
  ChildProcess server(ATTENTION_SERVER_BINARY,
                      {"--ready-file", path, "--grpc-port", "0", "--http=false",
                       "--drain-delay", "1h"});
  EXPECT_THAT(server.ReadAll(), HasSubstr("--ready-file: '" + path + "'"));
  EXPECT_EQ(server.Wait(), 1);
  EXPECT_FALSE(std::filesystem::exists(path + ".part"));
}

struct WrongOption {
  const char* name;
  std::vector<std::string> arguments;
  const char* message;
};

class WrongOptionTest : public testing::TestWithParam<WrongOption> {};

TEST_P(WrongOptionTest, EndsItWithExitCodeTwoAndTheOptionsName) {
  ChildProcess server(ATTENTION_SERVER_BINARY, GetParam().arguments);
  const std::string text = server.ReadAll();
  EXPECT_EQ(server.Wait(), 2);
  EXPECT_THAT(text, HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    All, WrongOptionTest,
    testing::ValuesIn(std::vector<WrongOption>{
        {"Unknown", {"--colour", "red"}, "--colour"},
        {"PortTooLarge", {"--grpc-port", "65536"}, "--grpc-port"},
        {"PortNegative", {"--grpc-port=-1"}, "--grpc-port"},
        {"PortIsAWord", {"--grpc-port", "http"}, "--grpc-port"},
        {"HttpPortTooLarge", {"--http-port", "65536"}, "--http-port"},
        {"ThreadsNegative", {"--worker-threads=-2"}, "--worker-threads"},
        {"UnknownBackend", {"--backend", "abacus"}, "--backend"},
        {"RequestLimitTooLarge",
         {"--max-request-bytes", "2GiB"},
         "--max-request-bytes"},
        {"ResponseLimitZero",
         {"--max-response-bytes", "0"},
         "--max-response-bytes"},
        {"NoRequestsInFlight",
         {"--max-requests-in-flight", "0"},
         "--max-requests-in-flight"},
        {"DrainTimeNegative", {"--drain-time=-1s"}, "--drain-time"},
        {"UnknownLogLevel", {"--log-level", "loud"}, "--log-level"},
        {"UnknownLogFormat", {"--log-format", "xml"}, "--log-format"},
        {"SocketPathTooLong",
         {"--grpc-unix-socket", std::string(108, 's')},
         "--grpc-unix-socket: a path of 108 bytes (expected at most 107)"},
        {"PlainTextBeyondLoopback",
         {"--grpc-address", "0.0.0.0", "--grpc-port", "0", "--http-port", "0"},
         "--grpc-address"},
        {"NoSuchConfig",
         {"--config", "/nonexistent/file"},
         "/nonexistent/file"},
    }),
    [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace attention::test
