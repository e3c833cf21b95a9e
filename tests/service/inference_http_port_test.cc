// What the HTTP port has around inference: counts, drain, management, access.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/service/gated_server.h"
#include "tests/service/http_caller.h"
#include "tests/service/http_infer.h"
#include "tests/service/infer_requests.h"
#include "tests/service/requests.h"
#include "tests/support/temporary_folder.h"

namespace attention::test {
namespace {

using Json = nlohmann::json;

// Polls for a minute.
bool MetricsBecome(const server::Server& server, const std::string& line) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (
      !absl::StrContains(HttpAnswer(server.http_address(), "/metrics"), line)) {
    if (std::chrono::steady_clock::now() > end) return false;
  }
  return true;
}

TEST(InferenceHttpPortTest, IsCountedWithTheRpcThatIsTheSame) {
  const auto server = StartServer();
  HttpPost(server->http_address(), kInferPath, ToHttp(GoodInfer(), false).body);
  HttpPost(server->http_address(), kInferPath, "{");
  EXPECT_TRUE(MetricsBecome(
      *server, R"(grpc_method="ModelInfer",grpc_code="InvalidArgument"} 1)"));
  EXPECT_TRUE(
      MetricsBecome(*server, R"(grpc_method="ModelInfer",grpc_code="OK"} 1)"));
}

TEST(InferenceHttpPortTest, ManagementIsCountedWithTheRpcThatIsTheSame) {
  const auto server = StartServer();
  const std::string& address = server->http_address();
  HttpAnswer(address, "/v2/models/scaled_dot_product_attention/config");
  HttpAnswer(address, "/v2/models/nobody/config");
  const std::string service =
      R"(grpc_type="unary",grpc_service="inference.GRPCInferenceService")";
  for (const std::string& line :
       {absl::StrCat("grpc_server_started_total{", service,
                     R"(,grpc_method="ModelConfig"} 2)"),
        absl::StrCat("grpc_server_handled_total{", service,
                     R"(,grpc_method="ModelConfig",grpc_code="OK"} 1)"),
        absl::StrCat(
            "grpc_server_handled_total{", service,
            R"(,grpc_method="ModelConfig",grpc_code="NotFound"} 1)")}) {
    EXPECT_TRUE(MetricsBecome(*server, line)) << line;
  }
}

TEST(InferenceHttpPortTest, WhatNobodyWaitsForIsNotComputed) {
  TileGate gate;
  gate.CloseAt(1);
  server::ServerOptions options = TestOptions();
  options.worker_threads = 1;
  const auto server = StartServer(options, &gate);
  const HttpInfer http = ToHttp(ToInfer(LargeRequest()), /*binary=*/true);
  const auto send = [&](HttpCaller& caller) {
    caller.Send(absl::StrCat(
        "POST ", kInferPath, " HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: ",
        http.body.size(), "\r\n", http.headers, "\r\n", http.body));
  };
  auto caller = std::make_unique<HttpCaller>(server->http_address());
  send(*caller);
  gate.WaitUntilHolding();
  auto waiting = std::make_unique<HttpCaller>(server->http_address());
  send(*waiting);
  EXPECT_TRUE(MetricsBecome(
      *server,
      R"(grpc_server_started_total{grpc_type="unary",grpc_service="inference.GRPCInferenceService",grpc_method="ModelInfer"} 2)"));
  waiting.reset();
  EXPECT_TRUE(MetricsBecome(
      *server, R"(grpc_method="ModelInfer",grpc_code="Canceled"} 1)"));
  gate.Open();
  EXPECT_EQ(HttpStatus(caller->Read("\r\n\r\n")), 200);
}

TEST(InferenceHttpPortTest, ADrainingServerSaysSo) {
  TileGate gate;
  gate.CloseAt(1);
  const TemporaryFolder folder;
  server::ServerOptions options = TestOptions();
  options.model_repository = folder.path();
  const auto server = StartServer(options, &gate);
  const std::string& address = server->http_address();
  const HttpInfer large = ToHttp(ToInfer(LargeRequest()), /*binary=*/true);
  HttpCaller caller(address);
  caller.Send(absl::StrCat(
      "POST ", kInferPath, " HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: ",
      large.body.size(), "\r\n", large.headers, "\r\n", large.body));
  gate.WaitUntilHolding();
  std::thread drain([&server] { EXPECT_TRUE(server->Drain()); });
  // The last that a drain turns off; until then, inference would wait.
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  int status = 200;
  while (status == 200 && std::chrono::steady_clock::now() < end) {
    status = HttpStatus(HttpPost(address, "/v2/repository/index", ""));
  }
  EXPECT_EQ(status, 503);
  const HttpInfer http = ToHttp(GoodInfer(), /*binary=*/false);
  EXPECT_EQ(HttpStatus(HttpPost(address, kInferPath, http.body)), 503);
  gate.Open();
  EXPECT_EQ(HttpStatus(caller.Read("\r\n\r\n")), 200);
  drain.join();
}

TEST(InferenceHttpPortTest, ADrainWaitsForARequestThatIsArriving) {
  const auto server = StartServer();
  const std::string& address = server->http_address();
  const HttpInfer http = ToHttp(GoodInfer(), /*binary=*/false);
  HttpCaller caller(address);
  caller.Send(absl::StrCat("POST ", kInferPath,
                           " HTTP/1.1\r\nHost: 127.0.0.1\r\nExpect: "
                           "100-continue\r\nContent-Length: ",
                           http.body.size(), "\r\n\r\n"));
  ASSERT_EQ(HttpStatus(caller.Read("\r\n\r\n")), 100);
  std::future<bool> drained =
      std::async(std::launch::async, [&server] { return server->Drain(); });
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (HttpStatus(HttpPost(address, kInferPath, http.body)) == 200 &&
         std::chrono::steady_clock::now() < end) {
  }
  EXPECT_EQ(drained.wait_for(std::chrono::seconds(0)),
            std::future_status::timeout);
  caller.Send(http.body);
  const std::string answer = caller.Read();
  EXPECT_EQ(HttpStatus(answer), 503);
  EXPECT_TRUE(absl::StrContains(answer, "Connection: close")) << answer;
  EXPECT_TRUE(drained.get());
}

TEST(InferenceHttpPortTest, ManagementIsThatOfGrpc) {
  const auto server = StartServer();
  const std::string& address = server->http_address();
  const auto get = [&](const std::string& path) {
    return Json::parse(HttpBody(HttpAnswer(address, path)));
  };
  const std::string model = absl::StrCat("/v2/models/", kDotProduct);
  EXPECT_EQ(get("/v2")["name"], "attention-server");
  EXPECT_EQ(get(model)["inputs"][0]["shape"], Json({-1, -1, -1, -1}));
  EXPECT_EQ(get(model + "/versions/1")["name"], kDotProduct);
  EXPECT_EQ(get(model + "/config")["max_batch_size"], 0);
  EXPECT_EQ(get("/v2/models/stats")["model_stats"].size(), 4);
  EXPECT_EQ(HttpStatus(HttpAnswer(address, model + "/ready")), 200);
  EXPECT_EQ(HttpStatus(HttpAnswer(address, "/v2/models/nobody/ready")), 404);
  EXPECT_EQ(HttpStatus(HttpAnswer(address, "/v2/models/nobody")), 404);
  EXPECT_EQ(HttpStatus(HttpAnswer(address, model + "/versions/x")), 400);
  EXPECT_EQ(HttpStatus(HttpAnswer(address, model + "/infer")), 405);
  EXPECT_EQ(HttpStatus(HttpPost(address, "/v2/repository/index", "")), 200);
  EXPECT_EQ(
      HttpStatus(HttpPost(address, "/v2/repository/index", R"({"ready":1})")),
      400);
  EXPECT_EQ(HttpStatus(HttpPost(address, "/v2/repository/models/a/load", "")),
            503);
  EXPECT_EQ(
      HttpStatus(HttpPost(address, "/v2/systemsharedmemory/region/a/register",
                          R"({"key":"/a","byte_size":4})")),
      503);
  EXPECT_EQ(
      HttpStatus(HttpPost(address, "/v2/logging", R"({"log_info":false})")),
      501);
}

TEST(InferenceHttpPortTest, CanBeSwitchedOff) {
  server::ServerOptions options = TestOptions();
  options.http_inference = false;
  const auto server = StartServer(options);
  EXPECT_EQ(HttpStatus(HttpAnswer(server->http_address(), "/v2")), 404);
  EXPECT_EQ(HttpStatus(HttpPost(server->http_address(), kInferPath,
                                std::string(32 << 10, ' '))),
            404);
  EXPECT_EQ(HttpStatus(HttpAnswer(server->http_address(), "/metrics")), 200);
}

// A probe's body is read and left alone.
TEST(InferenceHttpPortTest, BodiesOfProbesAreReadWhereItIsSwitchedOff) {
  server::ServerOptions options = TestOptions();
  for (const bool inference : {true, false}) {
    options.http_inference = inference;
    const auto server = StartServer(options);
    for (const char* path : {"/metrics", "/v2/health/live"}) {
      HttpCaller caller(server->http_address());
      caller.Send(absl::StrCat("GET ", path,
                               " HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: "
                               "close\r\nContent-Length: 2\r\n\r\n{}"));
      EXPECT_EQ(HttpStatus(caller.Read()), 200) << path;
      EXPECT_EQ(HttpStatus(HttpPost(server->http_address(), path, "{}")), 405);
    }
  }
}

TEST(InferenceHttpPortTest, IsNotReachedFromOtherMachinesInPlainText) {
  server::ServerOptions options = TestOptions();
  options.http_address = "0.0.0.0";
  for (const bool insecure : {false, true}) {
    options.insecure = insecure;
    const auto server = StartServer(options);
    const std::string address = absl::StrCat(
        "127.0.0.1:",
        server->http_address().substr(server->http_address().rfind(':') + 1));
    EXPECT_EQ(HttpStatus(HttpAnswer(address, "/v2")), insecure ? 200 : 403);
    EXPECT_EQ(HttpStatus(HttpPost(address, kInferPath,
                                  ToHttp(GoodInfer(), false).body)),
              insecure ? 200 : 403);
    EXPECT_EQ(HttpStatus(HttpAnswer(address, "/metrics")), 200);
  }
}

}  // namespace
}  // namespace attention::test
