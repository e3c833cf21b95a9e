#ifndef ATTENTION_TESTS_SERVICE_GATED_SERVER_H_
#define ATTENTION_TESTS_SERVICE_GATED_SERVER_H_

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "core/backend.h"
#include "server/options/options.h"
#include "server/server.h"

namespace attention::test {

/// Counts tiles and holds them up: what a server calls after every tile.
class TileGate {
 public:
  /// An open gate: tiles are only counted.
  TileGate() = default;

  /// From the `tile`-th tile on (1 is the first), every tile waits for Open().
  /// Before the server starts.
  void CloseAt(int64_t tile) { closed_from_ = tile; }
  /// Called after every tile that passes once the gate was opened again. Before
  /// the server starts.
  void AfterOpening(std::function<void()> pace) { pace_ = std::move(pace); }

  void OnTile();
  void Open();

  /// Returns when the gate holds a tile.
  void WaitUntilHolding();
  /// Returns when the gate holds a tile or `given_up` is true, which whoever
  /// makes it true says with Wake(). True where it holds a tile.
  bool WaitUntilHolding(const std::function<bool()>& given_up);
  void Wake();

  int64_t tiles() const;

 private:
  int64_t closed_from_ = 0;  // 0: never
  std::function<void()> pace_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  int64_t tiles_ = 0;
  bool holding_ = false;
  bool open_ = false;
};

/// Options for tests: loopback, a free port, two workers, no log.
server::ServerOptions TestOptions();
/// And callers may register shared memory.
server::ServerOptions WithSharedMemory();

/// A server in this process. Ends the process with a message where it does not
/// start. The gate must outlive it and be open when it ends; `more_backends`
/// come before the build's own where the backend is "auto".
std::unique_ptr<server::Server> StartServer(
    const server::ServerOptions& options = TestOptions(),
    TileGate* gate = nullptr,
    std::vector<std::unique_ptr<Backend>> more_backends = {});

}  // namespace attention::test

#endif  // ATTENTION_TESTS_SERVICE_GATED_SERVER_H_
