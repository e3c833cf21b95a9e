// Who may call over HTTP.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/service/callers_of_test.h"
#include "tests/service/gated_server.h"
#include "tests/service/http_caller.h"
#include "tests/service/http_infer.h"
#include "tests/service/metrics_page.h"
#include "tests/service/running_server.h"
#include "tests/service/tls_files.h"

namespace attention::test {
namespace {

using ::testing::HasSubstr;

class HttpCallersTest : public testing::Test {
 protected:
  HttpCallersTest() {
    files_.Write(
        "callers.json",
        CallersText(absl::StrCat(
            CallerEntry("ranker", "secret"), ",",
            CallerEntry("admin", "root", R"(, "may": ["shared_memory"])"))));
    options_.callers_file = files_.Path("callers.json");
    options_.allow_shared_memory = true;
  }
  static std::string Get(const server::Server& server, const std::string& path,
                         const std::string& token) {
    HttpCaller caller(server.http_address());
    caller.Send(absl::StrCat(
        "GET ", path, " HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n",
        "Authorization: Bearer ", token, "\r\n\r\n"));
    return caller.Read();
  }
  // Calls of the method over HTTP that began, and that ended with the code.
  static std::pair<double, double> Counted(const server::Server& server,
                                           const std::string& method,
                                           const std::string& code) {
    Metrics metrics = Scrape(server);
    const std::string service = "inference.GRPCInferenceService";
    return {
        metrics[OfCall("grpc_server_started_total", service, method)],
        metrics[OfCall("grpc_server_handled_total", service, method, code)]};
  }
  static std::string Post(const server::Server& server, const std::string& path,
                          const std::string& body, const std::string& token) {
    return HttpPost(server.http_address(), path, body,
                    absl::StrCat("Authorization: Bearer ", token, "\r\n"));
  }

  TlsFiles files_;
  server::ServerOptions options_ = TestOptions();
};

TEST_F(HttpCallersTest, ATokenThatIsKnownIsServedAndNoOther) {
  const auto server = StartServer(options_);
  EXPECT_EQ(HttpStatus(Get(*server, "/v2", "secret")), 200);
  // It is asked for its model, and has none.
  EXPECT_EQ(HttpStatus(Post(*server, "/v2/models/nobody/infer",
                            R"({"inputs":[]})", "secret")),
            404);
  for (const char* wrong : {"", "secre", "secret2", "\x80\xff"}) {
    EXPECT_EQ(HttpStatus(Get(*server, "/v2", wrong)), 401) << wrong;
    EXPECT_EQ(HttpStatus(Post(*server, kInferPath, "{}", wrong)), 401) << wrong;
  }
  const std::string none = HttpPost(server->http_address(), kInferPath, "{}");
  EXPECT_EQ(HttpStatus(none), 401);
  EXPECT_THAT(none, HasSubstr("WWW-Authenticate: Bearer"));
}

TEST_F(HttpCallersTest, HealthAndMetricsNeedNoToken) {
  const auto server = StartServer(options_);
  for (const char* path : {"/v2/health/live", "/v2/health/ready", "/metrics"}) {
    EXPECT_EQ(HttpStatus(HttpAnswer(server->http_address(), path)), 200);
  }
}

TEST_F(HttpCallersTest, CallsOfNobodyKnownAreCounted) {
  const auto server = StartServer(options_);
  EXPECT_EQ(HttpStatus(Get(*server, "/v2/models/x", "wrong")), 401);
  EXPECT_EQ(Counted(*server, "ModelMetadata", "Unauthenticated"),
            std::pair(1.0, 1.0));
  EXPECT_EQ(HttpStatus(Post(*server, "/v2/repository/index", "{}", "wrong")),
            401);
  EXPECT_EQ(Counted(*server, "RepositoryIndex", "Unauthenticated"),
            std::pair(1.0, 1.0));
}

TEST_F(HttpCallersTest, CallsWithAWrongBodyAreCounted) {
  const auto server = StartServer(options_);
  const std::string path = "/v2/repository/index";
  EXPECT_EQ(HttpStatus(Post(*server, path, "{", "secret")), 400);
  EXPECT_EQ(HttpStatus(Post(*server, path, R"({"other": 1})", "secret")), 400);
  EXPECT_EQ(Counted(*server, "RepositoryIndex", "InvalidArgument"),
            std::pair(2.0, 2.0));
  const std::string large(65 << 10, ' ');
  EXPECT_EQ(HttpStatus(Post(*server, path, large, "secret")), 413);
  EXPECT_EQ(Counted(*server, "RepositoryIndex", "ResourceExhausted"),
            std::pair(3.0, 1.0));
}

TEST_F(HttpCallersTest, WhatACallerMayNotIsForbidden) {
  const auto server = StartServer(options_);
  const std::string path = "/v2/systemsharedmemory/status";
  EXPECT_EQ(HttpStatus(Get(*server, path, "root")), 200);
  const std::string answer = Get(*server, path, "secret");
  EXPECT_EQ(HttpStatus(answer), 403);
  EXPECT_THAT(answer, HasSubstr("ranker"));
}

TEST_F(HttpCallersTest, ACallerIsLookedUpOnceBeforeTheBody) {
  const RunningServer server = Launch(
      {"--callers-file", files_.Path("callers.json"), "--log-level", "debug"});
  const std::string head =
      absl::StrCat("POST ", kInferPath,
                   " HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n",
                   "Authorization: Bearer secret\r\n",
                   "Expect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  HttpCaller begun(server.http_address);
  begun.Send(head);
  EXPECT_EQ(HttpStatus(begun.Read("\r\n\r\n")), 100);
  files_.Write("callers.json", CallersText(CallerEntry("other", "next")));
  server.process->ReadLineWith("1 callers are known now");
  begun.Send("{}");
  const std::string answer = begun.Read();
  EXPECT_EQ(HttpStatus(answer), 400) << answer;  // the body says too little
  HttpCaller late(server.http_address);
  late.Send(head);
  EXPECT_EQ(HttpStatus(late.Read("\r\n\r\n")), 401);
}

TEST_F(HttpCallersTest, ABodyOfNobodyKnownIsNotWaitedFor) {
  const auto server = StartServer(options_);
  HttpCaller caller(server->http_address());
  caller.Send(absl::StrCat(
      "POST ", kInferPath,
      " HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000000\r\n\r\n"));
  EXPECT_EQ(HttpStatus(caller.Read("\r\n\r\n")), 401);
}

}  // namespace
}  // namespace attention::test
