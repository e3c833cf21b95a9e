#ifndef ATTENTION_TESTS_SERVICE_HELD_CALL_H_
#define ATTENTION_TESTS_SERVICE_HELD_CALL_H_

#include <gtest/gtest.h>

#include <memory>

#include "tests/service/gated_server.h"
#include "tests/service/requests.h"
#include "tests/service/wire_client.h"

namespace attention::test {

/// A server with `options`, and a call of client() to it that is held at its
/// first tile until Release().
class HeldCall {
 public:
  explicit HeldCall(const server::ServerOptions& options) {
    gate_.CloseAt(1);
    server_ = StartServer(options, &gate_);
    client_ = std::make_unique<WireClient>(server_->address());
    call_ = client_->Start(kAttend, GoodRequest().SerializeAsString());
    gate_.WaitUntilHolding();
  }
  ~HeldCall() { gate_.Open(); }
  HeldCall(const HeldCall&) = delete;
  HeldCall& operator=(const HeldCall&) = delete;

  const server::Server& server() const { return *server_; }
  WireClient& client() { return *client_; }

  /// The call ends well.
  void Release() {
    gate_.Open();
    EXPECT_TRUE(call_->Wait().ok());
  }

 private:
  TileGate gate_;
  std::unique_ptr<server::Server> server_;
  std::unique_ptr<WireClient> client_;
  std::unique_ptr<PendingCall> call_;
};

}  // namespace attention::test

#endif  // ATTENTION_TESTS_SERVICE_HELD_CALL_H_
