#include "tests/service/gated_server.h"

#include <cstdlib>
#include <iostream>
#include <utility>

#include "server/telemetry/log.h"

namespace attention::test {

void TileGate::OnTile() {
  {
    std::unique_lock lock(mutex_);
    ++tiles_;
    if (closed_from_ == 0 || tiles_ < closed_from_) return;
    if (!open_) {
      holding_ = true;
      changed_.notify_all();
      changed_.wait(lock, [this] { return open_; });
    }
  }
  if (pace_) pace_();
}

void TileGate::Open() {
  const std::lock_guard lock(mutex_);
  open_ = true;
  changed_.notify_all();
}

void TileGate::WaitUntilHolding() {
  WaitUntilHolding([] { return false; });
}

bool TileGate::WaitUntilHolding(const std::function<bool()>& given_up) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return holding_ || given_up(); });
  return holding_;
}

void TileGate::Wake() {
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
}

int64_t TileGate::tiles() const {
  const std::lock_guard lock(mutex_);
  return tiles_;
}

server::ServerOptions TestOptions() {
  server::ServerOptions options;
  options.grpc_port = 0;
  options.http_port = 0;
  options.worker_threads = 2;
  options.log_level = "off";
  return options;
}

server::ServerOptions WithSharedMemory() {
  server::ServerOptions options = TestOptions();
  options.allow_shared_memory = true;
  return options;
}

std::unique_ptr<server::Server> StartServer(
    const server::ServerOptions& options, TileGate* gate,
    std::vector<std::unique_ptr<Backend>> more_backends) {
  server::SetUpLog(options.log_level, options.log_format);
  server::TestHooks hooks;
  if (gate != nullptr) hooks.on_tile = [gate] { gate->OnTile(); };
  hooks.more_backends = std::move(more_backends);
  auto server = server::Server::Start(options, std::move(hooks));
  if (!server.ok()) {
    std::cerr << "the server does not start: " << server.status() << '\n';
    std::abort();
  }
  return *std::move(server);
}

}  // namespace attention::test
