// Callers that go away: what nobody waits for is not computed. Tiles are
// counted, never time.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "tests/service/gated_server.h"
#include "tests/service/requests.h"
#include "tests/service/wire_client.h"

namespace attention::test {
namespace {

using absl::StatusCode;

constexpr int64_t kHoldAt = 3;

// A server on which one request at a time is admitted, and which holds the
// kHoldAt-th tile. Once the gate is open, each tile waits for a round trip on
// the caller's connection: what the caller did before has arrived by then, and
// the server's threads have had their turn.
class CancellationTest : public testing::Test {
 protected:
  CancellationTest() {
    gate_.CloseAt(kHoldAt);
    gate_.AfterOpening([this] { (void)client_->GetServerInfo(); });
    server::ServerOptions options = TestOptions();
    options.max_requests_in_flight = 1;
    server_ = StartServer(options, &gate_);
    client_ = std::make_unique<WireClient>(server_->address());
  }
  ~CancellationTest() override { gate_.Open(); }

  // How many tiles LargeRequest() has when nobody cancels it.
  static int64_t TilesOfTheWholeProblem() {
    TileGate gate;
    const auto server = StartServer(TestOptions(), &gate);
    WireClient client(server->address());
    EXPECT_TRUE(client.Attend(LargeRequest()).ok());
    return gate.tiles();
  }

  // To be called when the caller of LargeRequest() has gone away: that request
  // ends, and has computed only a small part.
  void ExpectThatItStops() {
    gate_.Open();
    // Nothing else is admitted until the request is gone.
    ExpectGoodReply(AttendOnceAdmitted(*client_, GoodRequest()));
    const int64_t whole = TilesOfTheWholeProblem();
    EXPECT_GT(whole, 500) << "the problem must be large for this test";
    EXPECT_LT(gate_.tiles(), whole / 4);
  }

  TileGate gate_;
  std::unique_ptr<server::Server> server_;
  std::unique_ptr<WireClient> client_;
};

TEST_F(CancellationTest, ACancelledCallStopsComputing) {
  const auto call = client_->Start(kAttend, LargeRequest().SerializeAsString());
  gate_.WaitUntilHolding();
  call->Cancel();
  EXPECT_EQ(call->Wait().status().code(), StatusCode::kCancelled);
  ExpectThatItStops();
}

TEST_F(CancellationTest, ABrokenConnectionStopsComputing) {
  auto other = std::make_unique<WireClient>(server_->address());
  auto call = other->Start(kAttend, LargeRequest().SerializeAsString());
  gate_.WaitUntilHolding();
  call.reset();
  other.reset();
  ExpectThatItStops();
}

TEST_F(CancellationTest, AnExpiredDeadlineStopsComputing) {
  // A deadline that passes before anything is computed shows nothing: a longer
  // one is tried then, as soon as the server has let go of that request.
  std::chrono::milliseconds timeout(250);
  while (true) {
    const auto call =
        client_->Start(kAttend, LargeRequest().SerializeAsString(), timeout);
    std::atomic<bool> over = false;
    absl::Status end;
    std::thread waiter([&] {
      end = call->Wait().status();
      over = true;
      gate_.Wake();
    });
    const bool holding = gate_.WaitUntilHolding([&] { return over.load(); });
    waiter.join();
    if (end.code() == StatusCode::kDeadlineExceeded) {
      timeout *= 2;
    } else {
      ASSERT_EQ(end.code(), StatusCode::kResourceExhausted) << end;
    }
    if (holding) break;
  }
  ExpectThatItStops();
}

TEST_F(CancellationTest, ACancelledStreamStopsComputing) {
  const auto stream = client_->OpenStream(kAttendStream);
  ASSERT_TRUE(stream->Write(LargeRequest().SerializeAsString()));
  gate_.WaitUntilHolding();
  stream->Cancel();
  EXPECT_EQ(stream->Finish().code(), StatusCode::kCancelled);
  ExpectThatItStops();
}

TEST_F(CancellationTest, ACancelledCallThatNothingWasComputedOfIsCancelled) {
  const auto call = client_->Start(kAttend, LargeRequest().SerializeAsString());
  call->Cancel();
  EXPECT_EQ(call->Wait().status().code(), StatusCode::kCancelled);
  gate_.Open();
  ExpectGoodReply(AttendOnceAdmitted(*client_, GoodRequest()));
}

}  // namespace
}  // namespace attention::test
