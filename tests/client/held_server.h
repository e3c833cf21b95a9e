#ifndef ATTENTION_TESTS_CLIENT_HELD_SERVER_H_
#define ATTENTION_TESTS_CLIENT_HELD_SERVER_H_

#include <gtest/gtest.h>

#include <condition_variable>
#include <memory>
#include <mutex>

#include "server/server.h"

namespace attention::client {

/// A gate in front of every tile that a server has computed: open until
/// Close().
class Gate {
 public:
  void Close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  void Open() {
    const std::lock_guard lock(mutex_);
    closed_ = false;
    changed_.notify_all();
  }
  /// Waits until somebody stands before the closed gate.
  void AwaitArrival() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return waiting_ > 0; });
  }
  /// What the server calls.
  void Pass() {
    std::unique_lock lock(mutex_);
    if (!closed_) return;
    ++waiting_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return !closed_; });
    --waiting_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool closed_ = false;
  int waiting_ = 0;
};

/// A server on a free loopback port (or `port`), with quiet logs.
inline std::unique_ptr<server::Server> StartServer(
    Gate* gate = nullptr, int port = 0, server::ServerOptions options = {}) {
  options.grpc_port = port;
  options.http = false;
  options.log_level = "off";
  std::function<void()> on_tile;
  if (gate != nullptr) on_tile = [gate] { gate->Pass(); };
  auto server = server::Server::Start(options, {.on_tile = std::move(on_tile)});
  EXPECT_TRUE(server.ok()) << server.status();
  return server.ok() ? *std::move(server) : nullptr;
}

}  // namespace attention::client

#endif  // ATTENTION_TESTS_CLIENT_HELD_SERVER_H_
