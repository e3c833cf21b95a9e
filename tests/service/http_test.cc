// The HTTP port of a real server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/reference/reference_backend.h"
#include "server/telemetry/backend_health.h"
#include "tests/service/gated_server.h"
#include "tests/service/http_caller.h"
#include "tests/service/requests.h"
#include "tests/service/running_server.h"
#include "tests/service/wire_client.h"
#include "tests/support/child_process.h"

namespace attention::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kReady[] = "/v2/health/ready";
constexpr char kLive[] = "/v2/health/live";

// Polls for a minute.
bool BecomesStatus(const std::string& address, const std::string& path,
                   int status) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (HttpStatus(HttpAnswer(address, path)) != status) {
    if (std::chrono::steady_clock::now() > end) return false;
  }
  return true;
}

TEST(HttpTest, AServerThatServesIsLiveStartedAndReady) {
  const auto server = StartServer();
  for (const char* path : {kLive, "/v2/health/started", kReady}) {
    EXPECT_EQ(HttpStatus(HttpAnswer(server->http_address(), path)), 200);
  }
}

TEST(HttpTest, ReadinessTurnsOffBeforeCallsAreRefused) {
  RunningServer server = Launch({"--drain-delay", "1h"});
  const std::string& http = server.http_address;
  WireClient client(server.address);
  server.process->Signal(SIGTERM);
  EXPECT_TRUE(BecomesStatus(http, kReady, 503)) << server.line;
  EXPECT_EQ(HttpStatus(HttpAnswer(http, kLive)), 200);
  EXPECT_EQ(HttpStatus(HttpAnswer(http, "/v2/health/started")), 200);
  ExpectGoodReply(client.Attend(GoodRequest()));
}

TEST(HttpTest, NothingSaysReadyWhenNoBackendIsLeft) {
  const auto health = std::make_shared<server::BackendHealth>();
  server::TestHooks hooks;
  hooks.health = health;
  const auto server = server::Server::Start(TestOptions(), std::move(hooks));
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string& http = (*server)->http_address();
  WireClient client((*server)->address());
  // ServerReadyResponse { bool ready = 1 }
  constexpr char kServerReady[] = "/inference.GRPCInferenceService/ServerReady";
  EXPECT_EQ(client.Call(kServerReady, "").value_or("failed"), "\x08\x01");
  EXPECT_EQ(HttpStatus(HttpAnswer(http, kReady)), 200);
  health->Note(*MakeReferenceBackend(), absl::UnavailableError("it is lost"),
               /*serving=*/false);
  EXPECT_EQ(client.Call(kServerReady, "").value_or("failed"), "");
  EXPECT_EQ(HttpStatus(HttpAnswer(http, kReady)), 503);
  // HealthCheckResponse { NOT_SERVING }
  EXPECT_EQ(client.Call(kHealthCheck, "").value_or("failed"), "\x08\x02");
}

TEST(HttpTest, CanBeSwitchedOff) {
  const RunningServer server = Launch({"--http=false"});
  EXPECT_THAT(server.line,
              AllOf(HasSubstr("listening on"), Not(HasSubstr("http://"))));
}

TEST(HttpTest, ATakenPortEndsTheServerWithItsName) {
  const auto first = StartServer();
  const std::string address = first->http_address();
  ChildProcess second(ATTENTION_SERVER_BINARY,
                      {"--grpc-port", "0", "--http-port",
                       address.substr(address.find(':') + 1)});
  const std::string text = second.ReadAll();
  EXPECT_EQ(second.Wait(), 1);
  EXPECT_THAT(text, AllOf(HasSubstr(address), HasSubstr("--http-port")));
}

}  // namespace
}  // namespace attention::test
