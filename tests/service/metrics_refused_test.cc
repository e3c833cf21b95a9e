// What /metrics of a real server tells of requests that were refused.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/service/gated_server.h"
#include "tests/service/held_call.h"
#include "tests/service/http_caller.h"
#include "tests/service/http_infer.h"
#include "tests/service/metrics_page.h"
#include "tests/service/requests.h"
#include "tests/service/wire_client.h"

namespace attention::test {
namespace {

std::string OfRefusals(const std::string& reason) {
  return absl::StrCat("attention_requests_refused_total{reason=\"", reason,
                      "\"}");
}

// Returns once the metric is above 0.
void WaitUntil(const server::Server& server, const std::string& metric) {
  const auto patience = std::chrono::steady_clock::now() + kPatience;
  while (Scrape(server)[metric] == 0) {
    ASSERT_LT(std::chrono::steady_clock::now(), patience) << metric;
    std::this_thread::yield();
  }
}

TEST(RefusedMetricsTest, TellsWhichLimitRefused) {
  server::ServerOptions options = TestOptions();
  options.max_requests_in_flight = 2;  // 1 for each caller
  HeldCall held(options);
  EXPECT_EQ(held.client()
                .Call(kAttend, GoodRequest().SerializeAsString())
                .status()
                .code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Scrape(held.server())[OfRefusals("caller_requests")], 1);
  held.Release();
}

TEST(RefusedMetricsTest, TellsOfCallersThatCancelWhatWaits) {
  server::ServerOptions options = TestOptions();
  options.worker_threads = 1;  // which the held call has
  HeldCall held(options);
  const auto waits =
      held.client().Start(kAttend, GoodRequest().SerializeAsString());
  WaitUntil(held.server(), "attention_queue_requests");
  waits->Cancel();
  EXPECT_EQ(waits->Wait().status().code(), absl::StatusCode::kCancelled);
  WaitUntil(held.server(), OfRefusals("cancelled"));
  Metrics metrics = Scrape(held.server());
  EXPECT_EQ(metrics[OfRefusals("cancelled")], 1);
  EXPECT_EQ(
      metrics[OfModel("attention_request_queue_seconds_count", "attention.v1")],
      1);
  held.Release();
}

TEST(RefusedMetricsTest, TellsOfBodiesThatWereTooLarge) {
  server::ServerOptions options = TestOptions();
  options.max_request_bytes = 8192;
  const auto server = StartServer(options);
  const std::string& address = server->http_address();
  EXPECT_EQ(HttpStatus(HttpPost(address, kInferPath, std::string(8193, ' '))),
            413);
  Metrics metrics = Scrape(*server);
  EXPECT_EQ(metrics[OfRefusals("too_large")], 1);
  EXPECT_EQ(metrics[OfCall("grpc_server_handled_total",
                           "inference.GRPCInferenceService", "ModelInfer",
                           "ResourceExhausted")],
            1);
}

TEST(RefusedMetricsTest, ABodyOfNoInferenceIsNoRequest) {
  const auto server = StartServer();
  const std::string& address = server->http_address();
  EXPECT_EQ(HttpStatus(HttpPost(address, "/v2/repository/index",
                                std::string(128 << 10, ' '))),
            413);
  EXPECT_EQ(Scrape(*server)[OfRefusals("too_large")], 0);
}

TEST(RefusedMetricsTest, TellsOfBodiesThatHadNoRoom) {
  server::ServerOptions options = TestOptions();
  options.memory_limit = 16 << 20;  // 2 MiB of it are for bodies
  const auto server = StartServer(options);
  HttpCaller first(server->http_address());
  HttpCaller second(server->http_address());
  for (HttpCaller* const caller : {&first, &second}) {
    caller->Send(absl::StrCat("POST ", kInferPath,
                              " HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                              "Content-Length: 819201\r\n\r\n",
                              std::string(819'200, ' ')));
  }
  WaitUntil(*server, OfRefusals("caller_memory"));
}

}  // namespace
}  // namespace attention::test
