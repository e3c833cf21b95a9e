// Inference over HTTP: the same answers as over gRPC.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/service/gated_server.h"
#include "tests/service/http_caller.h"
#include "tests/service/http_infer.h"
#include "tests/service/infer_requests.h"
#include "tests/service/requests.h"
#include "tests/service/wire_client.h"

namespace attention::test {
namespace {

using inference::ModelInferRequest;
using Json = nlohmann::json;
using ::testing::HasSubstr;

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

TEST(InferenceHttpTest, AnswersAsGrpcDoes) {
  const auto server = StartServer();
  WireClient client(server->address());
  const ModelInferRequest request = GoodInfer();
  const auto expected = Infer(client, request);
  ASSERT_TRUE(expected.ok()) << expected.status();
  for (const bool binary : {false, true}) {
    const HttpInfer http = ToHttp(request, binary);
    EXPECT_EQ(OutputOf(HttpPost(server->http_address(), kInferPath, http.body,
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
      HttpPost(server->http_address(), kInferPath, http.body, http.headers);
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
    caller.Send(absl::StrCat("POST ", kInferPath,
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
      HttpPost(server->http_address(), kInferPath, json.dump());
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
      HttpPost(server->http_address(), kInferPath, json.dump());
  ASSERT_EQ(HttpStatus(answer), 200) << answer;
  const Json outputs = Json::parse(HttpBody(answer))["outputs"];
  ASSERT_EQ(outputs.size(), 4U);
  EXPECT_EQ(outputs[0]["datatype"], "INT64");
  EXPECT_TRUE(outputs[0]["data"][0].is_number_integer());
  EXPECT_EQ(outputs[1]["shape"], outputs[0]["shape"]);
  EXPECT_EQ(outputs[3]["name"], "scores");
  json["parameters"]["top_k"] = 0;
  EXPECT_THAT(HttpPost(server->http_address(), kInferPath, json.dump()),
              HasSubstr("top_k: 0 (expected 1 to"));
}

TEST(InferenceHttpTest, ElementsThatAreWrongAreNamed) {
  const auto server = StartServer();
  const Json good = Json::parse(ToHttp(GoodInfer(), /*binary=*/false).body);
  const auto says = [&](const char* key, const Json& value) {
    Json json = good;
    json["inputs"][0][key] = value;
    return HttpPost(server->http_address(), kInferPath, json.dump());
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
    return HttpPost(address, kInferPath, body, headers + "\r\n");
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
  const std::string more = HttpPost(server->http_address(), kInferPath,
                                    http.body + "x", http.headers);
  EXPECT_EQ(HttpStatus(more), 400);
  EXPECT_THAT(more, HasSubstr("1 bytes more"));
  http.body.pop_back();
  const std::string less =
      HttpPost(server->http_address(), kInferPath, http.body, http.headers);
  EXPECT_EQ(HttpStatus(less), 400);
  EXPECT_THAT(less, HasSubstr("value.binary_data_size"));
}

TEST(InferenceHttpTest, BodiesAndRepliesHaveTheLimitsOfGrpc) {
  server::ServerOptions options = TestOptions();
  options.max_request_bytes = 8192;
  options.max_response_bytes = 12000;
  const auto server = StartServer(options);
  const std::string& address = server->http_address();
  EXPECT_EQ(HttpStatus(HttpPost(address, kInferPath, std::string(8193, ' '))),
            413);
  // 576 bytes of elements may take eight times as many as text.
  for (const bool binary : {false, true}) {
    const HttpInfer http = ToHttp(GoodInfer(), binary);
    EXPECT_EQ(
        HttpStatus(HttpPost(address, kInferPath, http.body, http.headers)),
        binary ? 200 : 413);
  }
}

TEST(InferenceHttpTest, AFullServerSaysWhenToComeAgain) {
  TileGate gate;
  gate.CloseAt(1);
  server::ServerOptions options = TestOptions();
  options.max_requests_in_flight = 1;
  const auto server = StartServer(options, &gate);
  WireClient client(server->address());
  const auto call = client.Start(kAttend, GoodRequest().SerializeAsString());
  gate.WaitUntilHolding();
  for (const bool binary : {false, true}) {
    const HttpInfer http = ToHttp(GoodInfer(), binary);
    const std::string answer =
        HttpPost(server->http_address(), kInferPath, http.body, http.headers);
    EXPECT_EQ(HttpStatus(answer), 429) << answer;
    EXPECT_THAT(answer, HasSubstr("Retry-After: 1"));
    EXPECT_THAT(answer, HasSubstr(R"({"error":"the server is full)"));
  }
  gate.Open();
  EXPECT_TRUE(call->Wait().ok());
}

TEST(InferenceHttpTest, ADeadlineThatHasPassedIsTold) {
  const auto server = StartServer();
  EXPECT_EQ(HttpStatus(HttpPost(server->http_address(), kInferPath,
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
      "traceparent: "
      "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n";
  for (const auto& [headers, status] :
       {std::pair("", 200), std::pair("Content-Encoding: gzip\r\n", 415),
        std::pair("grpc-timeout: soon\r\n", 400),
        std::pair("grpc-timeout: 1n\r\n", 504)}) {
    for (const auto& [path, body] :
         {std::pair<std::string, std::string>(kInferPath,
                                              ToHttp(GoodInfer(), false).body),
          std::pair<std::string, std::string>("/v2/repository/index", "{}")}) {
      const std::string answer =
          HttpPost(server->http_address(), path, body, trace + headers);
      EXPECT_EQ(HttpStatus(answer), status) << path << " " << headers;
      EXPECT_THAT(answer, HasSubstr(trace)) << path << " " << headers;
    }
  }
}

}  // namespace
}  // namespace attention::test
