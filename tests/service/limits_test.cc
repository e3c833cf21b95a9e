// Requests that are larger, later or more than the server allows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/service/gated_server.h"
#include "tests/service/infer_requests.h"
#include "tests/service/requests.h"
#include "tests/service/wire_client.h"
#include "tests/service/wrong_input.h"

namespace attention::test {
namespace {

using absl::StatusCode;

// No queries' worth of output, but `queries` x `keys` weights.
v1::AttendRequest WeightsRequest(int64_t queries, int64_t keys) {
  v1::AttendRequest request;
  request.set_id("weights");
  *request.mutable_query() = Filled(v1::DATA_TYPE_FP32, {queries, 1}, 1);
  v1::KeyValueTensors& key_value = *request.mutable_key_value();
  *key_value.mutable_key() = Filled(v1::DATA_TYPE_FP32, {keys, 1}, 1);
  *key_value.mutable_value() = Filled(v1::DATA_TYPE_FP32, {keys, 1}, 1);
  request.set_return_weights(true);
  return request;
}

// A request of a few bytes whose output has `width` columns.
v1::AttendRequest WideOutputRequest(int64_t width) {
  v1::AttendRequest request;
  *request.mutable_query() = Filled(v1::DATA_TYPE_FP32, {1, 1}, 1);
  v1::KeyValueTensors& key_value = *request.mutable_key_value();
  *key_value.mutable_key() = MakeTensor(v1::DATA_TYPE_FP32, {0, 1}, {});
  *key_value.mutable_value() = MakeTensor(v1::DATA_TYPE_FP32, {0, width}, {});
  return request;
}

TEST(MessageLimitTest, WeightsBeyondItAreRefusedBeforeComputing) {
  TileGate gate;
  server::ServerOptions options = TestOptions();
  options.max_response_bytes = 1 << 20;
  const auto server = StartServer(options, &gate);
  WireClient client(server->address());
  // 1024 x 1024 weights of 4 bytes: 4 MiB.
  ExpectRefusal(client.Attend(WeightsRequest(1024, 1024)).status(),
                StatusCode::kResourceExhausted,
                {"weights: ", "[1024, 1024]", "1048576"});
  EXPECT_EQ(gate.tiles(), 0);
  ExpectGoodReply(client.Attend(GoodRequest()));
}

TEST(RequestLimitTest, DimensionsAndWeightsBeyondItAreRefused) {
  TileGate gate;
  server::ServerOptions options = TestOptions();
  options.max_dimension = 100;
  options.max_weights_bytes = 10'000;
  const auto server = StartServer(options, &gate);
  WireClient client(server->address());
  ExpectRefusal(client.Attend(WeightsRequest(101, 1)).status(),
                StatusCode::kResourceExhausted,
                {"query: shape [101, 1]", "at most 100, max_dimension"});
  ExpectRefusal(client.Attend(WeightsRequest(1, 101)).status(),
                StatusCode::kResourceExhausted, {"key: shape [101, 1]"});
  ExpectRefusal(client.Attend(WeightsRequest(50, 51)).status(),
                StatusCode::kResourceExhausted,
                {"weights: shape [50, 51] takes 10200 bytes",
                 "at most 10000, max_weights_bytes"});
  v1::AttendRequest more = WeightsRequest(50, 51);
  more.clear_return_weights();
  more.set_scores(v1::SCORES_SCALED);
  ExpectRefusal(client.Attend(more).status(), StatusCode::kResourceExhausted,
                {"scores: shape [50, 51] takes 10200 bytes",
                 "at most 10000, max_weights_bytes"});
  more.clear_scores();
  more.set_top_k(51);
  ExpectRefusal(client.Attend(more).status(), StatusCode::kResourceExhausted,
                {"top_k_indices: shape [50, 51] takes 20400 bytes",
                 "at most 10000, max_weights_bytes"});
  EXPECT_EQ(gate.tiles(), 0);
  EXPECT_TRUE(client.Attend(WeightsRequest(50, 50)).ok());
}

// Each extent is one that a tensor may have, and no byte bounds their product.
TEST(RequestLimitTest, ManyHeadsOfNothingAreAnsweredAtOnce) {
  const auto server = StartServer();
  WireClient client(server->address());
  constexpr int64_t kMany = int64_t{1} << 24;
  for (const int64_t heads : {int64_t{1} << 14, kMany}) {
    const v1::Tensor none =
        MakeTensor(v1::DATA_TYPE_FP32, {kMany, heads, 0, 1}, {});
    inference::ModelInferRequest request;
    request.set_model_name(kDotProduct);
    for (const char* input : {"query", "key", "value"}) {
      AddInput(input, none, request);
    }
    request.add_outputs()->set_name("key_weights");
    EXPECT_EQ(Infer(client, request).status(), absl::OkStatus());
  }
}

TEST(RequestLimitTest, ACallerBeyondItsQuotaIsToldWhenToComeAgain) {
  server::ServerOptions options = TestOptions();
  options.max_requests_per_second = 1;
  const auto server = StartServer(options);
  WireClient client(server->address());
  ExpectGoodReply(client.Attend(GoodRequest()));
  absl::Status refused;
  // As often as it takes where each call took a second itself.
  for (int i = 0; i < 100 && refused.ok(); ++i) {
    refused = client.Attend(GoodRequest()).status();
  }
  ExpectRefusal(refused, StatusCode::kResourceExhausted,
                {"the caller's quota is used up", "1 requests a second"});
}

TEST(RequestLimitTest, ARequestOfMoreThanASecondsQuotaIsAnsweredOnce) {
  server::ServerOptions options = TestOptions();
  options.max_bytes_per_second = 1 << 16;
  const auto server = StartServer(options);
  WireClient client(server->address());
  // Its message is 1.5 MiB, which waits for its turn to be decoded; its weights
  // are as large and asked for then.
  const v1::AttendRequest request = WeightsRequest(2, 3 << 16);
  ASSERT_GT(request.ByteSizeLong(), 3 << 19);
  EXPECT_TRUE(client.Attend(request).ok());
  ExpectRefusal(client.Attend(GoodRequest()).status(),
                StatusCode::kResourceExhausted,
                {"the caller's quota is used up", "65536 bytes a second"});
}

TEST(MessageLimitTest, WeightsBeyondTheDefaultLimitAreRefusedBeforeComputing) {
  TileGate gate;
  const auto server = StartServer(TestOptions(), &gate);
  WireClient client(server->address());
  // 128 KiB of input, 1 GiB of weights.
  ExpectRefusal(client.Attend(WeightsRequest(16384, 16384)).status(),
                StatusCode::kResourceExhausted, {"weights: "});
  EXPECT_EQ(gate.tiles(), 0);
}

TEST(MessageLimitTest, AHugeOutputOfNoKeysIsRefusedBeforeAllocating) {
  const auto server = StartServer();
  WireClient client(server->address());
  for (const int64_t width :
       {int64_t{1} << 28, int64_t{1} << 40, int64_t{1} << 60}) {
    ExpectRefusal(client.Attend(WideOutputRequest(width)).status(),
                  StatusCode::kResourceExhausted, {"output: "});
  }
  ExpectGoodReply(client.Attend(GoodRequest()));
}

// An output of 4 MiB, an lse of 4 bytes.
TEST(MessageLimitTest, AnOutputThatIsNotSentIsNoPartOfIt) {
  server::ServerOptions options = TestOptions();
  options.max_response_bytes = 1 << 20;
  const auto server = StartServer(options);
  WireClient client(server->address());
  inference::ModelInferRequest request = ToInfer(WideOutputRequest(1 << 20));
  request.clear_outputs();
  request.add_outputs()->set_name("lse");
  EXPECT_EQ(Infer(client, request).status(), absl::OkStatus());
  request.add_outputs()->set_name("output");
  ExpectRefusal(
      Infer(client, request).status(), StatusCode::kResourceExhausted,
      {"output: shape [1, 1048576] takes 4194304 bytes", "max_response_bytes"});
}

TEST(MessageLimitTest, AHugeOutputThatIsNotSentIsRefusedBeforeAllocating) {
  server::ServerOptions options = TestOptions();
  options.max_dimension = int64_t{1} << 60;
  const auto server = StartServer(options);
  WireClient client(server->address());
  for (const int64_t width :
       {int64_t{1} << 40, int64_t{1} << 54, int64_t{1} << 60}) {
    inference::ModelInferRequest request = ToInfer(WideOutputRequest(width));
    request.clear_outputs();
    request.add_outputs()->set_name("lse");
    ExpectRefusal(Infer(client, request).status(),
                  StatusCode::kResourceExhausted,
                  {"the request needs", "never fits", "memory_limit"});
  }
}

TEST(MessageLimitTest, ARequestBeyondItIsRefused) {
  server::ServerOptions options = TestOptions();
  options.max_request_bytes = 16 << 10;
  const auto server = StartServer(options);
  WireClient client(server->address());
  EXPECT_EQ(client.Attend(LargeRequest()).status().code(),
            StatusCode::kResourceExhausted);
  ExpectGoodReply(client.Attend(GoodRequest()));
}

TEST(MessageLimitTest, ARequestOfExactlyTheLimitPasses) {
  server::ServerOptions options = TestOptions();
  const v1::AttendRequest request = LargeRequest();
  options.max_request_bytes = static_cast<int64_t>(request.ByteSizeLong());
  const auto server = StartServer(options);
  WireClient client(server->address());
  EXPECT_TRUE(client.Attend(request).ok());
}

TEST(DeadlineTest, AnExpiredOneIsAnsweredAndTheServerGoesOn) {
  const auto server = StartServer();
  WireClient client(server->address());
  EXPECT_EQ(client
                .Call(kAttend, GoodRequest().SerializeAsString(),
                      std::chrono::milliseconds(-1))
                .status()
                .code(),
            StatusCode::kDeadlineExceeded);
  ExpectGoodReply(client.Attend(GoodRequest()));
}

TEST(AdmissionTest, RequestsBeyondTheLimitAreTurnedAway) {
  TileGate gate;
  gate.CloseAt(1);
  server::ServerOptions options = TestOptions();
  options.max_requests_in_flight = 1;
  const auto server = StartServer(options, &gate);
  WireClient client(server->address());
  const auto first = client.Start(kAttend, GoodRequest().SerializeAsString());
  gate.WaitUntilHolding();
  ExpectRefusal(client.Attend(GoodRequest()).status(),
                StatusCode::kResourceExhausted,
                {"the server is full", "max_requests_in_flight"});
  gate.Open();
  EXPECT_TRUE(first->Wait().ok());
  ExpectGoodReply(AttendOnceAdmitted(client, GoodRequest()));
}

TEST(AdmissionTest, ARequestBeyondTheMemoryLimitIsToldThatItNeverFits) {
  TileGate gate;
  server::ServerOptions options = TestOptions();
  options.memory_limit = 16 << 20;
  const auto server = StartServer(options, &gate);
  WireClient client(server->address());
  // 16 KiB of input, 8 MiB of weights.
  ExpectRefusal(client.Attend(WeightsRequest(2048, 1024)).status(),
                StatusCode::kResourceExhausted,
                {"the request needs", "never fits", "8388608", "memory_limit"});
  EXPECT_EQ(gate.tiles(), 0);
  ExpectGoodReply(client.Attend(GoodRequest()));
}

TEST(AdmissionTest, WorkingMemoryCountsTowardsTheLimit) {
  TileGate gate;
  server::ServerOptions options = TestOptions();
  options.memory_limit = 96 << 20;
  options.max_response_bytes = 64 << 20;
  const auto server = StartServer(options, &gate);
  WireClient client(server->address());
  // A reply of 40 MiB, which half of the limit has room for, and as much again
  // to compute it in.
  ExpectRefusal(client.Attend(WideOutputRequest(10 << 20)).status(),
                StatusCode::kResourceExhausted,
                {"the request needs", "never fits", "memory_limit"});
  EXPECT_EQ(gate.tiles(), 0);
  ExpectGoodReply(client.Attend(GoodRequest()));
}

}  // namespace
}  // namespace attention::test
