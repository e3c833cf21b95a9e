// What /metrics of a real server tells.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/cuda/cuda_backend.h"
#include "core/cuda/emulation/emulated_device.h"
#include "tests/service/callers_of_test.h"
#include "tests/service/gated_server.h"
#include "tests/service/held_call.h"
#include "tests/service/http_infer.h"
#include "tests/service/infer_requests.h"
#include "tests/service/metrics_page.h"
#include "tests/service/requests.h"
#include "tests/service/wire_client.h"
#include "tests/support/temporary_folder.h"

namespace attention::test {
namespace {

TEST(MetricsTest, CallsAreCountedByTheirCode) {
  const auto server = StartServer();
  WireClient client(server->address());
  ExpectGoodReply(client.Attend(GoodRequest()));
  ExpectGoodReply(client.Attend(GoodRequest()));
  EXPECT_FALSE(client.Call(kAttend, "no message").ok());
  Metrics metrics = Scrape(*server);
  EXPECT_EQ(metrics[OfAttend("grpc_server_started_total")], 3);
  EXPECT_EQ(metrics[OfAttend("grpc_server_handled_total", "OK")], 2);
  EXPECT_EQ(metrics[OfAttend("grpc_server_handled_total", "InvalidArgument")],
            1);
  EXPECT_EQ(metrics[OfAttend("grpc_server_handling_seconds_count")], 3);
  EXPECT_EQ(metrics["attention_requests_refused_total{reason=\"invalid\"}"], 1);
}

// A server that knows no caller; its file of them is in `folder`.
server::ServerOptions ForKnownCallers(const TemporaryFolder& folder) {
  server::ServerOptions options = TestOptions();
  options.callers_file = folder.path() + "/callers.json";
  std::ofstream(options.callers_file) << CallersText("");
  return options;
}

TEST(MetricsTest, CallsOfUnknownCallersAreCounted) {
  const TemporaryFolder folder;
  const auto server = StartServer(ForKnownCallers(folder));
  WireClient client(server->address());
  const std::string service = "attention.v1.AttentionService";
  EXPECT_FALSE(client.Attend(GoodRequest()).ok());
  EXPECT_FALSE(client.OpenStream(kAttendStream)->Finish().ok());
  Metrics metrics = Scrape(*server);
  for (const auto& [method, type] :
       {std::pair("Attend", "unary"),
        std::pair("AttendStream", "bidi_stream")}) {
    EXPECT_EQ(
        metrics[OfCall("grpc_server_started_total", service, method, "", type)],
        1);
    EXPECT_EQ(metrics[OfCall("grpc_server_handled_total", service, method,
                             "Unauthenticated", type)],
              1);
  }
}

// Before a body comes, and where there is none.
TEST(MetricsTest, CallsOfUnknownCallersOverHttpAreCounted) {
  const TemporaryFolder folder;
  const auto server = StartServer(ForKnownCallers(folder));
  for (const char* body : {"{}", ""}) {
    EXPECT_EQ(HttpStatus(HttpPost(server->http_address(), kInferPath, body)),
              401);
  }
  Metrics metrics = Scrape(*server);
  const std::string service = "inference.GRPCInferenceService";
  EXPECT_EQ(metrics[OfCall("grpc_server_started_total", service, "ModelInfer")],
            2);
  EXPECT_EQ(metrics[OfCall("grpc_server_handled_total", service, "ModelInfer",
                           "Unauthenticated")],
            2);
}

TEST(MetricsTest, RequestsAreCountedByApiAndModel) {
  const auto server = StartServer();
  WireClient client(server->address());
  ExpectGoodReply(client.Attend(GoodRequest()));
  ASSERT_TRUE(Infer(client, GoodInfer()).ok());
  Metrics metrics = Scrape(*server);
  for (const char* api : {"attention.v1", "inference"}) {
    EXPECT_EQ(metrics[OfModel("attention_requests_total", api, ",code=\"OK\"")],
              1);
    for (const char* part : {"queue", "compute", "transfer"}) {
      const std::string name =
          absl::StrCat("attention_request_", part, "_seconds");
      EXPECT_EQ(metrics[OfModel(name + "_count", api)], 1) << name;
      EXPECT_GT(metrics[OfModel(name + "_sum", api)], -1e-9) << name;
    }
    EXPECT_GT(metrics[OfModel("attention_request_bytes_total", api)], 0);
    EXPECT_GT(metrics[OfModel("attention_reply_bytes_total", api)], 0);
  }
  EXPECT_EQ(metrics["attention_tensors_total{datatype=\"FP32\"}"], 6);
}

TEST(MetricsTest, RequestsOfUnknownModelsAreOfTheirApi) {
  const auto server = StartServer();
  WireClient client(server->address());
  inference::ModelInferRequest request = GoodInfer();
  request.set_model_name("nobody");
  EXPECT_FALSE(Infer(client, request).ok());
  EXPECT_EQ(HttpStatus(HttpPost(server->http_address(), kInferPath, "{")), 400);
  Metrics metrics = Scrape(*server);
  for (const char* code : {"NotFound", "InvalidArgument"}) {
    EXPECT_EQ(
        metrics[absl::StrCat(
            "attention_requests_total{api=\"inference\",model=\"unknown\","
            "code=\"",
            code, "\"}")],
        1)
        << code;
  }
}

TEST(MetricsTest, AStreamIsOneCallWithManyMessages) {
  const auto server = StartServer();
  WireClient client(server->address());
  const auto stream = client.OpenStream(kAttendStream);
  for (const char* id : {"a", "b"}) {
    ASSERT_TRUE(stream->Write(GoodRequest(id).SerializeAsString()));
    ASSERT_TRUE(stream->Read().has_value());
  }
  stream->WritesDone();
  EXPECT_FALSE(stream->Read().has_value());
  ASSERT_TRUE(stream->Finish().ok());
  Metrics metrics = Scrape(*server);
  const std::string labels =
      "{grpc_type=\"bidi_stream\",grpc_service=\"attention.v1."
      "AttentionService\","
      "grpc_method=\"AttendStream\"";
  EXPECT_EQ(metrics["grpc_server_started_total" + labels + "}"], 1);
  EXPECT_EQ(
      metrics["grpc_server_handled_total" + labels + ",grpc_code=\"OK\"}"], 1);
  EXPECT_EQ(metrics["grpc_server_msg_received_total" + labels + "}"], 2);
  EXPECT_EQ(metrics["grpc_server_msg_sent_total" + labels + "}"], 2);
}

TEST(MetricsTest, CallsWithoutTensorsAreCounted) {
  const auto server = StartServer();
  WireClient client(server->address());
  const std::string ours = "attention.v1.AttentionService";
  const std::string oip = "inference.GRPCInferenceService";
  ASSERT_TRUE(client.Call("/" + ours + "/GetServerInfo", "").ok());
  ASSERT_TRUE(client.Call("/" + oip + "/ServerLive", "").ok());
  ASSERT_TRUE(client.Call("/" + oip + "/ServerLive", "").ok());
  EXPECT_FALSE(client.Call("/" + oip + "/RepositoryModelLoad", "").ok());
  ASSERT_TRUE(client.Call("/grpc.health.v1.Health/Check", "").ok());
  Metrics metrics = Scrape(*server);
  const auto count = [&](const std::string& service, const std::string& method,
                         const std::string& code) {
    return metrics[OfCall("grpc_server_handled_total", service, method, code)];
  };
  EXPECT_EQ(count(ours, "GetServerInfo", "OK"), 1);
  EXPECT_EQ(count(oip, "ServerLive", "OK"), 2);
  EXPECT_EQ(count(oip, "RepositoryModelLoad", "Unavailable"), 1);
  EXPECT_EQ(count("grpc.health.v1.Health", "Check", "OK"), 1);
  EXPECT_EQ(metrics[OfCall("grpc_server_started_total", oip, "ServerLive")], 2);
  EXPECT_EQ(
      metrics[OfCall("grpc_server_handling_seconds_count", oip, "ServerLive")],
      2);
}

// Its name is the caller's: it would be kept for as long as the server runs.
TEST(MetricsTest, CallsOfUnknownMethodsShareOneSeries) {
  const auto server = StartServer();
  WireClient client(server->address());
  for (const char* method :
       {"/a.Service/One", "/a.Service/Two",
        "/attention.v1.AttentionService/Three", "/no_slash"}) {
    EXPECT_EQ(client.Call(method, "").status().code(),
              absl::StatusCode::kUnimplemented);
  }
  const std::string started = "grpc_server_started_total";
  double unknown = 0;
  for (const auto& [series, value] : Scrape(*server)) {
    if (!series.starts_with(started)) continue;
    EXPECT_THAT(series, testing::Not(testing::HasSubstr("a.Service")));
    if (value > 0) unknown += value;
  }
  EXPECT_EQ(unknown, 4);
  EXPECT_EQ(
      Scrape(*server)[OfCall(started, "unknown", "unknown", "", "bidi_stream")],
      4);
}

TEST(MetricsTest, CallsWithTensorsAreNotCountedTwice) {
  const auto server = StartServer();
  WireClient client(server->address());
  ExpectGoodReply(client.Attend(GoodRequest()));
  ASSERT_TRUE(Infer(client, GoodInfer()).ok());
  Metrics metrics = Scrape(*server);
  EXPECT_EQ(metrics[OfAttend("grpc_server_started_total")], 1);
  EXPECT_EQ(metrics[OfAttend("grpc_server_handled_total", "OK")], 1);
  EXPECT_EQ(
      metrics[OfCall("grpc_server_handled_total",
                     "inference.GRPCInferenceService", "ModelInfer", "OK")],
      1);
}

// A Watch has no end of its own.
TEST(MetricsTest, AStreamWithoutTensorsCountsItsMessagesAndItsEnd) {
  const auto server = StartServer();
  WireClient client(server->address());
  const std::string health = "grpc.health.v1.Health";
  const auto stream = client.OpenStream("/" + health + "/Watch");
  ASSERT_TRUE(stream->Write(""));
  stream->WritesDone();
  ASSERT_TRUE(stream->Read().has_value());
  const auto value = [&](const std::string& name, const std::string& code) {
    return Scrape(
        *server)[OfCall(name, health, "Watch", code, "server_stream")];
  };
  EXPECT_EQ(value("grpc_server_started_total", ""), 1);
  EXPECT_EQ(value("grpc_server_msg_sent_total", ""), 1);
  EXPECT_EQ(value("grpc_server_handled_total", "Canceled"), 0);
  stream->Cancel();
  EXPECT_FALSE(stream->Finish().ok());
  const auto patience = std::chrono::steady_clock::now() + kPatience;
  while (value("grpc_server_handled_total", "Canceled") == 0) {
    ASSERT_LT(std::chrono::steady_clock::now(), patience);
    std::this_thread::yield();
  }
}

TEST(MetricsTest, WhatIsInFlightIsSeenWhileItIs) {
  server::ServerOptions options = TestOptions();
  options.max_requests_in_flight = 4;
  HeldCall held(options);
  Metrics metrics = Scrape(held.server());
  EXPECT_EQ(metrics["attention_requests_in_flight"], 1);
  EXPECT_EQ(metrics["attention_requests_in_flight_limit"], 4);
  EXPECT_GT(metrics["attention_memory_in_flight_bytes"], 0);
  EXPECT_EQ(metrics["attention_connections{protocol=\"grpc\"}"], 1);
  EXPECT_EQ(metrics["attention_connections{protocol=\"http\"}"], 1);
  EXPECT_EQ(metrics[OfAttend("grpc_server_started_total")], 1);
  EXPECT_EQ(metrics[OfAttend("grpc_server_handled_total", "OK")], 0);
  held.Release();
}

// What tells of the n-th device.
std::string OfDevice(const std::string& name, int n) {
  return absl::StrCat("attention_device_", name, "{device=\"", n,
                      "\",name=\"emulated\"}");
}

TEST(MetricsTest, DevicesTellOfThemselves) {
  const auto faults = std::make_shared<cuda::Faults>();
  cuda::Devices devices;
  for (int n = 0; n < 2; ++n) {
    cuda::DeviceProperties properties = cuda::EmulatedProperties();
    properties.ordinal = n;
    devices.push_back(cuda::MakeEmulatedDevice(properties, faults));
  }
  std::vector<std::unique_ptr<Backend>> backends;
  backends.push_back(
      MakeCudaBackend(std::move(devices), {.name = "cuda_test",
                                           .memory_limit = int64_t{1} << 30,
                                           .experimental = false}));
  const auto server = StartServer(TestOptions(), nullptr, std::move(backends));
  WireClient client(server->address());
  ExpectGoodReply(client.Attend(GoodRequest()));
  Metrics metrics = Scrape(*server);
  EXPECT_EQ(metrics[OfDevice("healthy", 0)], 1);
  EXPECT_EQ(metrics[OfDevice("problems_total", 0)], 1);
  EXPECT_EQ(metrics[OfDevice("memory_bytes", 0)], std::ldexp(1, 40));
  const double held = metrics[OfDevice("memory_held_bytes", 0)];
  EXPECT_GT(held, 0);
  EXPECT_EQ(metrics[OfDevice("memory_free_bytes", 0)],
            std::ldexp(1, 40) - held);
  EXPECT_EQ(metrics[OfDevice("memory_limit_bytes", 0)], std::ldexp(1, 30));
  EXPECT_EQ(metrics.at(OfDevice("pages", 0)), 0);
  EXPECT_EQ(metrics.at(OfDevice("page_bytes", 0)), 0);
  EXPECT_EQ(metrics.at(OfDevice("page_bytes_brought_total", 0)), 0);
  EXPECT_EQ(metrics.at(OfDevice("problems_total", 1)), 0);
  EXPECT_FALSE(metrics.contains(OfDevice("memory_free_bytes", 1)));
  faults->launches_left = 0;
  EXPECT_FALSE(client.Attend(GoodRequest()).ok());
  EXPECT_EQ(Scrape(*server).at(OfDevice("healthy", 1)), 0);
}

TEST(MetricsTest, OneServersCountsAreNotAnothers) {
  const auto first = StartServer();
  const auto second = StartServer();
  WireClient client(first->address());
  ExpectGoodReply(client.Attend(GoodRequest()));
  EXPECT_EQ(Scrape(*second)[OfAttend("grpc_server_started_total")], 0);
}

}  // namespace
}  // namespace attention::test
