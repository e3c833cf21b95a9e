// The Open Inference Protocol over HTTP: the same answers as over gRPC.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/service/gated_server.h"
#include "tests/service/http_caller.h"
#include "tests/service/infer_requests.h"
#include "tests/service/requests.h"
#include "tests/service/wire_client.h"
#include "tests/support/temporary_folder.h"

namespace attention::test {
namespace {

using inference::ModelInferRequest;
using Json = nlohmann::json;
using ::testing::HasSubstr;

constexpr char kPath[] = "/v2/models/scaled_dot_product_attention/infer";

// The request over HTTP: with its elements in JSON, or behind it.
struct HttpInfer {
  std::string body;
  std::string headers;
};

// FP32 alone.
Json Floats(const std::string& bytes) {
  Json list = Json::array();
  for (size_t at = 0; at < bytes.size(); at += sizeof(float)) {
    float value = 0;
    std::memcpy(&value, bytes.data() + at, sizeof(value));
    list.push_back(value);
  }
  return list;
}

HttpInfer ToHttp(const ModelInferRequest& request, bool binary) {
  Json json = {{"id", request.id()}, {"inputs", Json::array()}};
  std::string behind;
  for (int i = 0; i < request.inputs_size(); ++i) {
    const auto& from = request.inputs(i);
    Json input = {{"name", from.name()},
                  {"datatype", from.datatype()},
                  {"shape", from.shape()}};
    const std::string& raw = request.raw_input_contents(i);
    if (binary) {
      input["parameters"]["binary_data_size"] = raw.size();
      behind += raw;
    } else {
      input["data"] = Floats(raw);
    }
    json["inputs"].push_back(input);
  }
  if (binary) json["parameters"]["binary_data_output"] = true;
  const std::string text = json.dump();
  return {text + behind,
          binary ? absl::StrCat(
                       "Inference-Header-Content-Length: ", text.size(), "\r\n")
                 : ""};
}

// Its one output, as bytes.
std::string OutputOf(const std::string& answer) {
  EXPECT_EQ(HttpStatus(answer), 200) << answer;
  const std::string body = HttpBody(answer);
  const std::string header = "Inference-Header-Content-Length: ";
  const size_t at = answer.find(header);
  if (at != std::string::npos) {
    return body.substr(std::stoul(answer.substr(at + header.size())));
  }
  std::string bytes;
  const Json json = Json::parse(body);
  for (const float value : json["outputs"][0]["data"]) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  return bytes;
}

// Polls for a minute.
bool MetricsBecome(const server::Server& server, const std::string& line) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (
      !absl::StrContains(HttpAnswer(server.http_address(), "/metrics"), line)) {
    if (std::chrono::steady_clock::now() > end) return false;
  }
  return true;
}

TEST(InferenceHttpTest, AnswersAsGrpcDoes) {
  const auto server = StartServer();
  WireClient client(server->address());
  const ModelInferRequest request = GoodInfer();
  const auto expected = Infer(client, request);
  ASSERT_TRUE(expected.ok()) << expected.status();
  for (const bool binary : {false, true}) {
    const HttpInfer http = ToHttp(request, binary);
    EXPECT_EQ(OutputOf(HttpPost(server->http_address(), kPath, http.body,
                                http.headers)),
              expected->raw_output_contents(0));
  }
}

TEST(InferenceHttpTest, ErrorsHaveTheTextsOfGrpc) {
  const auto server = StartServer();
  WireClient client(server->address());
  ModelInferRequest request = GoodInfer();
  request.mutable_inputs(1)->mutable_shape()->Set(0, 3);
  request.mutable_raw_input_contents(1)->append(
      request.raw_input_contents(1).substr(
          0, request.raw_input_contents(1).size() / 2));
  const HttpInfer http = ToHttp(request, /*binary=*/true);
  const std::string answer =
      HttpPost(server->http_address(), kPath, http.body, http.headers);
  EXPECT_EQ(HttpStatus(answer), 400);
  EXPECT_EQ(
      Json::parse(HttpBody(answer))["error"],
      static_cast<std::string>(Infer(client, request).status().message()));
}

TEST(InferenceHttpTest, OneConnectionServesManyRequests) {
  const auto server = StartServer();
  const HttpInfer http = ToHttp(GoodInfer(), /*binary=*/false);
  HttpCaller caller(server->http_address());
  for (int i = 0; i < 3; ++i) {
    caller.Send(absl::StrCat("POST ", kPath,
                             " HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: ",
                             http.body.size(), "\r\n\r\n", http.body));
    EXPECT_EQ(HttpStatus(caller.Read("]}]}")), 200);
  }
}

TEST(InferenceHttpTest, WhatJsonHasNoNumberForIsAString) {
  const auto server = StartServer();
  Json json = Json::parse(ToHttp(GoodInfer(), /*binary=*/false).body);
  json["inputs"].push_back({{"name", "valid_lens"},
                            {"datatype", "INT32"},
                            {"shape", {2}},
                            {"data", {0, 5}}});
  json["outputs"] = Json::parse(R"([{"name":"lse"}])");
  const std::string answer =
      HttpPost(server->http_address(), kPath, json.dump());
  ASSERT_EQ(HttpStatus(answer), 200) << answer;
  EXPECT_EQ(Json::parse(HttpBody(answer))["outputs"][0]["data"][0],
            "-Infinity");
}

TEST(InferenceHttpTest, MoreResultsAreNumbers) {
  const auto server = StartServer();
  Json json = Json::parse(ToHttp(GoodInfer(), /*binary=*/false).body);
  json["parameters"]["top_k"] = 1;
  json["parameters"]["scores"] = "masked";
  json["outputs"] = Json::parse(
      R"([{"name":"top_k_indices"},{"name":"top_k_weights"},
          {"name":"key_weights"},{"name":"scores"}])");
  const std::string answer =
      HttpPost(server->http_address(), kPath, json.dump());
  ASSERT_EQ(HttpStatus(answer), 200) << answer;
  const Json outputs = Json::parse(HttpBody(answer))["outputs"];
  ASSERT_EQ(outputs.size(), 4U);
  EXPECT_EQ(outputs[0]["datatype"], "INT64");
  EXPECT_TRUE(outputs[0]["data"][0].is_number_integer());
  EXPECT_EQ(outputs[1]["shape"], outputs[0]["shape"]);
  EXPECT_EQ(outputs[3]["name"], "scores");
  json["parameters"]["top_k"] = 0;
  EXPECT_THAT(HttpPost(server->http_address(), kPath, json.dump()),
              HasSubstr("top_k: 0 (expected 1 to"));
}

TEST(InferenceHttpTest, ElementsThatAreWrongAreNamed) {
  const auto server = StartServer();
  const Json good = Json::parse(ToHttp(GoodInfer(), /*binary=*/false).body);
  const auto says = [&](const char* key, const Json& value) {
    Json json = good;
    json["inputs"][0][key] = value;
    return HttpPost(server->http_address(), kPath, json.dump());
  };
  EXPECT_THAT(says("datatype", "FP31"),
              HasSubstr("query: datatype 'FP31' is unknown"));
  EXPECT_THAT(says("data", {1, true}), HasSubstr("query.data: element 1 is"));
  EXPECT_THAT(says("data", {1}), HasSubstr("query.data: 1 elements"));
}

TEST(InferenceHttpTest, TheHeaderThatIsWrongIsNamed) {
  const auto server = StartServer();
  const std::string& address = server->http_address();
  const std::string body = ToHttp(GoodInfer(), /*binary=*/false).body;
  const auto post = [&](const std::string& headers) {
    return HttpPost(address, kPath, body, headers + "\r\n");
  };
  EXPECT_EQ(HttpStatus(post("Content-Encoding: gzip")), 415);
  EXPECT_THAT(post("Content-Encoding: gzip"), HasSubstr("Content-Encoding"));
  for (const char* wrong : {"-1", "x", "99999999", "1e3"}) {
    const std::string answer =
        post(absl::StrCat("Inference-Header-Content-Length: ", wrong));
    EXPECT_EQ(HttpStatus(answer), 400) << wrong;
    EXPECT_THAT(answer, HasSubstr("Inference-Header-Content-Length"));
  }
  EXPECT_EQ(HttpStatus(post("grpc-timeout: soon")), 400);
}

TEST(InferenceHttpTest, BytesThatNoInputHasAreRefused) {
  const auto server = StartServer();
  HttpInfer http = ToHttp(GoodInfer(), /*binary=*/true);
  const std::string more =
      HttpPost(server->http_address(), kPath, http.body + "x", http.headers);
  EXPECT_EQ(HttpStatus(more), 400);
  EXPECT_THAT(more, HasSubstr("1 bytes more"));
  http.body.pop_back();
  const std::string less =
      HttpPost(server->http_address(), kPath, http.body, http.headers);
  EXPECT_EQ(HttpStatus(less), 400);
  EXPECT_THAT(less, HasSubstr("value.binary_data_size"));
}

TEST(InferenceHttpTest, BodiesAndRepliesHaveTheLimitsOfGrpc) {
  server::ServerOptions options = TestOptions();
  options.max_request_bytes = 8192;
  options.max_response_bytes = 12000;
  const auto server = StartServer(options);
  const std::string& address = server->http_address();
  EXPECT_EQ(HttpStatus(HttpPost(address, kPath, std::string(8193, ' '))), 413);
  // 576 bytes of elements may take eight times as many as text.
  for (const bool binary : {false, true}) {
    const HttpInfer http = ToHttp(GoodInfer(), binary);
    EXPECT_EQ(HttpStatus(HttpPost(address, kPath, http.body, http.headers)),
              binary ? 200 : 413);
  }
}

TEST(InferenceHttpTest, ADeadlineThatHasPassedIsTold) {
  const auto server = StartServer();
  EXPECT_EQ(HttpStatus(HttpPost(server->http_address(), kPath,
                                ToHttp(GoodInfer(), false).body,
                                "grpc-timeout: 1n\r\n")),
            504);
  EXPECT_EQ(HttpStatus(HttpPost(server->http_address(), "/v2/repository/index",
                                "", "grpc-timeout: 1n\r\n")),
            504);
}

TEST(InferenceHttpTest, ATraceComesBack) {
  const auto server = StartServer();
  const std::string trace =
      "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  EXPECT_THAT(HttpPost(server->http_address(), kPath,
                       ToHttp(GoodInfer(), false).body, trace + "\r\n"),
              HasSubstr(trace));
}

TEST(InferenceHttpTest, IsCountedWithTheRpcThatIsTheSame) {
  const auto server = StartServer();
  HttpPost(server->http_address(), kPath, ToHttp(GoodInfer(), false).body);
  HttpPost(server->http_address(), kPath, "{");
  EXPECT_TRUE(MetricsBecome(
      *server, R"(grpc_method="ModelInfer",grpc_code="InvalidArgument"} 1)"));
  EXPECT_TRUE(
      MetricsBecome(*server, R"(grpc_method="ModelInfer",grpc_code="OK"} 1)"));
}

TEST(InferenceHttpTest, ManagementIsCountedWithTheRpcThatIsTheSame) {
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

TEST(InferenceHttpTest, WhatNobodyWaitsForIsNotComputed) {
  TileGate gate;
  gate.CloseAt(1);
  server::ServerOptions options = TestOptions();
  options.worker_threads = 1;
  const auto server = StartServer(options, &gate);
  const HttpInfer http = ToHttp(ToInfer(LargeRequest()), /*binary=*/true);
  const auto send = [&](HttpCaller& caller) {
    caller.Send(absl::StrCat(
        "POST ", kPath, " HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: ",
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

TEST(InferenceHttpTest, ADrainingServerSaysSo) {
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
      "POST ", kPath, " HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: ",
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
  EXPECT_EQ(HttpStatus(HttpPost(address, kPath, http.body)), 503);
  gate.Open();
  EXPECT_EQ(HttpStatus(caller.Read("\r\n\r\n")), 200);
  drain.join();
}

TEST(InferenceHttpTest, ManagementIsThatOfGrpc) {
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

TEST(InferenceHttpTest, CanBeSwitchedOff) {
  server::ServerOptions options = TestOptions();
  options.http_inference = false;
  const auto server = StartServer(options);
  EXPECT_EQ(HttpStatus(HttpAnswer(server->http_address(), "/v2")), 404);
  EXPECT_EQ(HttpStatus(HttpAnswer(server->http_address(), "/metrics")), 200);
}

TEST(InferenceHttpTest, IsNotReachedFromOtherMachinesInPlainText) {
  server::ServerOptions options = TestOptions();
  options.http_address = "0.0.0.0";
  for (const bool insecure : {false, true}) {
    options.insecure = insecure;
    const auto server = StartServer(options);
    const std::string address = absl::StrCat(
        "127.0.0.1:",
        server->http_address().substr(server->http_address().rfind(':') + 1));
    EXPECT_EQ(HttpStatus(HttpAnswer(address, "/v2")), insecure ? 200 : 403);
    EXPECT_EQ(
        HttpStatus(HttpPost(address, kPath, ToHttp(GoodInfer(), false).body)),
        insecure ? 200 : 403);
    EXPECT_EQ(HttpStatus(HttpAnswer(address, "/metrics")), 200);
  }
}

}  // namespace
}  // namespace attention::test
