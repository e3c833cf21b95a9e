#include "attention_client/client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>
#include <utility>

#include "tests/client/held_server.h"
#include "tests/client/requests.h"

namespace attention::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Client ConnectTo(const server::Server& server, ClientOptions options = {}) {
  options.target = server.address();
  absl::StatusOr<Client> client = Client::Create(options);
  EXPECT_TRUE(client.ok()) << client.status();
  return *std::move(client);
}

TEST(ClientTest, AttendGivesTheOutputWithItsShapeAndBackend) {
  const auto server = StartServer();
  const Client client = ConnectTo(*server);
  const absl::StatusOr<AttendResult> result = client.Attend(NumberRequest(7));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->output.shape(), ElementsAre(1, 1));
  EXPECT_THAT(result->output.ToFloats(), ElementsAre(7));
  const absl::StatusOr<ServerInfo> info = client.GetServerInfo();
  ASSERT_TRUE(info.ok()) << info.status();
  // The first that is tried takes every request.
  EXPECT_EQ(result->backend, info->backends.at(0).name);
  EXPECT_FALSE(result->kernel.empty());
  EXPECT_FALSE(result->weights.has_value());
  EXPECT_FALSE(result->lse.has_value());
}

TEST(ClientTest, AttendGivesWeightsAndLseWhereAskedFor) {
  const auto server = StartServer();
  AttendRequest request = NumberRequest(7);
  request.scoring = ScaledDotProduct{.scale = 1.0};
  request.return_weights = true;
  request.return_lse = true;
  const absl::StatusOr<AttendResult> result =
      ConnectTo(*server).Attend(request);
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_TRUE(result->weights.has_value());
  EXPECT_THAT(result->weights->ToFloats(), ElementsAre(1));
  ASSERT_TRUE(result->lse.has_value());
  EXPECT_THAT(result->lse->ToFloats(), ElementsAre(11));  // 1*3 + 2*4
}

// Nobody listens at that one.
TEST(ClientTest, NoProxyOfTheEnvironmentIsBetweenThisMachineAndItself) {
  const auto server = StartServer();
  for (const char* name :
       {"no_grpc_proxy", "no_proxy", "grpc_proxy", "https_proxy"}) {
    ::unsetenv(name);
  }
  ::setenv("http_proxy", "http://127.0.0.1:1", /*overwrite=*/1);
  const absl::StatusOr<ServerInfo> info = ConnectTo(*server).GetServerInfo();
  ::unsetenv("http_proxy");
  EXPECT_TRUE(info.ok()) << info.status();
}

TEST(ClientTest, ErrorsKeepTheServersCodeAndMessage) {
  const auto server = StartServer();
  const absl::StatusOr<AttendResult> result =
      ConnectTo(*server).Attend(BadRequest());
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(result.status().message()), StartsWith("key: "));
}

TEST(ClientTest, OneClientMayBeUsedFromSeveralThreads) {
  const auto server = StartServer();
  const Client client = ConnectTo(*server);
  std::vector<std::thread> threads;
  std::vector<float> outputs(8);
  threads.reserve(outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    threads.emplace_back([&client, &outputs, i] {
      const auto result = client.Attend(NumberRequest(static_cast<float>(i)));
      outputs[i] = result.ok() ? result->output.ToFloats()[0] : -1;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(outputs, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

TEST(ClientTest, ACallThatOutlivesItsDeadlineIsDeadlineExceeded) {
  Gate gate;
  const auto server = StartServer(&gate);
  gate.Close();
  const absl::StatusOr<AttendResult> result =
      ConnectTo(*server, {.deadline = std::chrono::milliseconds(50)})
          .Attend(NumberRequest(1));
  gate.Open();
  EXPECT_EQ(result.status().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST(ClientTest, ADeadlineOfZeroIsNone) {
  const auto server = StartServer();
  const absl::StatusOr<AttendResult> result =
      ConnectTo(*server, {.deadline = std::chrono::milliseconds(0)})
          .Attend(NumberRequest(1));
  EXPECT_TRUE(result.ok()) << result.status();
}

TEST(ClientTest, ServerInfoHoldsTheServersOwnOptions) {
  server::ServerOptions options;
  options.worker_threads = 3;
  options.max_request_bytes = 1 << 20;
  options.max_stream_requests_in_flight = 5;
  const auto server = StartServer(nullptr, 0, options);
  const absl::StatusOr<ServerInfo> info = ConnectTo(*server).GetServerInfo();
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_FALSE(info->version.empty());
  ASSERT_FALSE(info->backends.empty());
  EXPECT_EQ(info->backends.back().name, "reference");
  EXPECT_EQ(info->worker_threads, 3);
  EXPECT_EQ(info->max_request_bytes, 1U << 20);
  EXPECT_EQ(info->max_response_bytes, 256U << 20);
  EXPECT_EQ(info->max_stream_requests_in_flight, 5U);
}

TEST(ClientTest, HealthIsServingForTheServerAndItsService) {
  const auto server = StartServer();
  const Client client = ConnectTo(*server);
  for (const char* service : {"", "attention.v1.AttentionService"}) {
    const absl::StatusOr<Health> health = client.CheckHealth(service);
    ASSERT_TRUE(health.ok()) << service << health.status();
    EXPECT_EQ(*health, Health::kServing) << service;
  }
}

TEST(ClientTest, HealthOfAnUnknownServiceIsNotFound) {
  const auto server = StartServer();
  EXPECT_EQ(ConnectTo(*server).CheckHealth("nobody").status().code(),
            absl::StatusCode::kNotFound);
}

// A server that drains, held up by one request until the gate opens.
TEST(ClientTest, ADrainingServerIsUnavailableAndFinishesWhatRuns) {
  Gate gate;
  const auto server = StartServer(&gate);
  const Client client = ConnectTo(*server);
  gate.Close();
  absl::Status held;
  std::thread holder([&] { held = client.Attend(NumberRequest(1)).status(); });
  gate.AwaitArrival();
  std::thread drainer([&] { server->Drain(); });
  absl::StatusOr<Health> health = Health::kServing;
  while (health.ok() && *health == Health::kServing) {
    health = client.CheckHealth();
  }
  EXPECT_TRUE(health.ok()) << health.status();
  // One that slips in before the drain stands before the gate.
  const Client brief = ConnectTo(
      *server, {.deadline = std::chrono::milliseconds(500), .max_attempts = 1});
  absl::Status refused;
  do {
    refused = brief.Attend(NumberRequest(1)).status();
  } while (refused.code() == absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable) << refused;
  gate.Open();
  holder.join();
  drainer.join();
  EXPECT_TRUE(held.ok()) << held;
}

TEST(ClientTest, AClientThatOutlivesItsServerFindsTheNextOne) {
  auto server = StartServer();
  const int port = server->port();
  const Client client =
      ConnectTo(*server, {.max_attempts = 5,
                          .initial_backoff = std::chrono::milliseconds(500),
                          .max_backoff = std::chrono::milliseconds(8000)});
  ASSERT_TRUE(client.Attend(NumberRequest(1)).ok());
  server.reset();
  absl::StatusOr<AttendResult> result = absl::UnknownError("not called");
  std::thread caller([&] { result = client.Attend(NumberRequest(5)); });
  server = StartServer(nullptr, port);
  caller.join();
  EXPECT_TRUE(result.ok()) << result.status();
}

TEST(ClientTest, AClientWithoutAServerIsUnavailable) {
  auto server = StartServer();
  const Client client = ConnectTo(
      *server,
      {.max_attempts = 2, .initial_backoff = std::chrono::milliseconds(1)});
  server.reset();
  const absl::Status status = client.Attend(NumberRequest(1)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
}

TEST(ClientTest, AReplyOverTheClientsLimitIsResourceExhausted) {
  const auto server = StartServer();
  AttendRequest request = LargeRequest(4);
  request.query = LargeRequest(200).query;
  request.value = Tensor::FromFloats({1, 64}, std::vector<float>(64, 1.0F));
  const absl::Status status = ConnectTo(*server, {.max_message_bytes = 10'000})
                                  .Attend(request)
                                  .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
}

TEST(ClientTest, AFullServerTellsAfterWhatTimeToCallAgain) {
  Gate gate;
  server::ServerOptions options;
  options.max_requests_in_flight = 2;  // 1 for each caller
  const auto server = StartServer(&gate, 0, options);
  const Client client = ConnectTo(*server);
  gate.Close();
  std::thread first(
      [&client] { EXPECT_TRUE(client.Attend(NumberRequest(1)).ok()); });
  gate.AwaitArrival();
  const absl::Status status = client.Attend(NumberRequest(2)).status();
  gate.Open();
  first.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_EQ(RetryAfter(status), std::chrono::milliseconds(100));
}

TEST(ClientTest, WhatFailsAgainHasNoTimeToCallAgain) {
  const auto server = StartServer();
  const absl::Status status = ConnectTo(*server).Attend(BadRequest()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_EQ(RetryAfter(status), std::nullopt);
}

TEST(ClientTest, ARequestOverTheClientsLimitIsNotSent) {
  auto server = StartServer();
  const Client client = ConnectTo(*server, {.max_message_bytes = 1000});
  server.reset();
  const absl::Status status = client.Attend(LargeRequest(100)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("1000 bytes"));
}

}  // namespace
}  // namespace attention::client
