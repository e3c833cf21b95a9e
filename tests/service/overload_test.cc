// More work than there is time for, and large requests beside small ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/cuda/cuda_backend.h"
#include "core/cuda/emulation/emulated_device.h"
#include "tests/service/gated_server.h"
#include "tests/service/held_call.h"
#include "tests/service/requests.h"
#include "tests/service/wire_client.h"
#include "tests/service/wrong_input.h"

namespace attention::test {
namespace {

using absl::StatusCode;

// Additive attention of `length` queries and keys, which takes a worker some
// nanoseconds for each pair and unit of the hidden width.
v1::AttendRequest Additive(int64_t length, int64_t hidden) {
  v1::AttendRequest request;
  *request.mutable_query() = Filled(v1::DATA_TYPE_FP32, {length, 1}, 0.5F);
  v1::KeyValueTensors& key_value = *request.mutable_key_value();
  *key_value.mutable_key() = Filled(v1::DATA_TYPE_FP32, {length, 1}, 0.25F);
  *key_value.mutable_value() = Filled(v1::DATA_TYPE_FP32, {length, 1}, 1);
  v1::Additive& additive = *request.mutable_additive();
  *additive.mutable_w_q() = Filled(v1::DATA_TYPE_FP32, {1, hidden}, 1);
  *additive.mutable_w_k() = Filled(v1::DATA_TYPE_FP32, {1, hidden}, 1);
  *additive.mutable_w_v() = Filled(v1::DATA_TYPE_FP32, {hidden}, 1);
  return request;
}

// Minutes of computing on any machine, in some hundred kilobytes.
std::string Endless() { return Additive(32768, 64).SerializeAsString(); }
// Too much to be answered on gRPC's own thread.
std::string Short() { return Additive(64, 8).SerializeAsString(); }

// On one connection, large requests keep every worker busy and more of them
// wait.
class BesideLargeRequestsTest : public testing::Test {
 protected:
  BesideLargeRequestsTest() {
    // Far deadlines: one that arrives late, when the server knows how long
    // they take, is not refused for it.
    for (int i = 0; i < 6; ++i) {
      calls_.push_back(
          large_.Start(kAttend, Endless(), std::chrono::hours(24)));
    }
    // Some of them run now: those that wait do not end by any deadline.
    while (large_.Call(kAttend, Endless(), std::chrono::milliseconds(500))
               .status()
               .code() != StatusCode::kResourceExhausted) {
    }
  }
  ~BesideLargeRequestsTest() override {
    for (const auto& call : calls_) call->Cancel();
    for (const auto& call : calls_) {
      const absl::Status status = call->Wait().status();
      EXPECT_EQ(status.code(), StatusCode::kCancelled) << status;
    }
  }

  std::unique_ptr<server::Server> server_ = StartServer();
  WireClient large_{server_->address()};
  std::vector<std::unique_ptr<PendingCall>> calls_;
};

TEST_F(BesideLargeRequestsTest, ASmallOneOfAnotherCallerIsServed) {
  WireClient other(server_->address());
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(other.Call(kAttend, Short()).ok());
  }
}

TEST_F(BesideLargeRequestsTest, ASmallOneOfTheSameCallerIsServed) {
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(large_.Call(kAttend, Short()).ok());
  }
}

TEST_F(BesideLargeRequestsTest, WhatCannotEndByItsDeadlineIsRefusedAtOnce) {
  WireClient other(server_->address());
  // Long enough that it is the server that answers.
  ExpectRefusal(
      other.Call(kAttend, Endless(), std::chrono::seconds(10)).status(),
      StatusCode::kResourceExhausted, {"the server is busy", "deadline"});
}

TEST(ComputeTimeTest, ARequestBeyondItIsStopped) {
  server::ServerOptions options = TestOptions();
  options.max_compute_time = std::chrono::milliseconds(50);
  const auto server = StartServer(options);
  WireClient client(server->address());
  ExpectRefusal(client.Call(kAttend, Endless()).status(),
                StatusCode::kResourceExhausted,
                {"computing was stopped", "50 ms", "max_compute_time"});
  ExpectGoodReply(client.Attend(GoodRequest()));
}

TEST(ComputeTimeTest, OnADeviceItIsStoppedBetweenLaunches) {
  cuda::Devices devices;
  devices.push_back(cuda::MakeEmulatedDevice());
  std::vector<std::unique_ptr<Backend>> backends;
  backends.push_back(MakeCudaBackend(
      std::move(devices), {.experimental = false, .plan = {.slice_work = 1}}));
  server::ServerOptions options = TestOptions();
  options.max_compute_time = std::chrono::milliseconds(1);
  const auto server =
      StartServer(options, /*gate=*/nullptr, std::move(backends));
  WireClient client(server->address());
  // Several launches, each of which takes longer than that.
  ExpectRefusal(
      client.Call(kAttend, Additive(1024, 2).SerializeAsString()).status(),
      StatusCode::kResourceExhausted,
      {"computing was stopped", "1 ms", "max_compute_time"});
}

TEST(QueueTest, ARequestWhoseCallerIsGoneGivesItsPlaceBackAtOnce) {
  TileGate gate;
  gate.CloseAt(1);
  server::ServerOptions options = TestOptions();
  options.worker_threads = 1;
  options.max_requests_in_flight = 4;  // 2 for each caller
  const auto server = StartServer(options, &gate);
  WireClient client(server->address());
  const auto running = client.Start(kAttend, GoodRequest().SerializeAsString());
  gate.WaitUntilHolding();
  // Nothing ends while the gate is closed: what waits has to leave by itself.
  for (int waited = 0; waited < 5;) {
    const auto call = client.Start(kAttend, GoodRequest().SerializeAsString(),
                                   std::chrono::milliseconds(100));
    const StatusCode code = call->Wait().status().code();
    if (code == StatusCode::kDeadlineExceeded) {
      ++waited;
    } else {
      // The server learns of the deadline a little later than the client.
      ASSERT_EQ(code, StatusCode::kResourceExhausted);
    }
  }
  gate.Open();
  EXPECT_TRUE(running->Wait().ok());
}

TEST(ShareTest, ACallerThatFillsItsHalfLeavesRoomForOthers) {
  server::ServerOptions options = TestOptions();
  options.max_requests_in_flight = 2;  // 1 for each caller
  HeldCall first(options);
  ExpectRefusal(first.client().Attend(GoodRequest()).status(),
                StatusCode::kResourceExhausted,
                {"the caller's share is full", "max_requests_in_flight"});
  WireClient other(first.server().address());
  const auto second = other.Start(kAttend, GoodRequest().SerializeAsString());
  first.Release();
  EXPECT_TRUE(second->Wait().ok());
}

}  // namespace
}  // namespace attention::test
