#ifndef ATTENTION_SERVER_SERVER_H_
#define ATTENTION_SERVER_SERVER_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/backend.h"
#include "server/options/options.h"

namespace attention::server {

class BackendHealth;

/// What tests put into a server; a served one has nothing of it.
struct TestHooks {
  /// Handed to the engine: counts and holds up tiles.
  std::function<void()> on_tile = {};
  /// In front of the build's own, where `auto` is asked for.
  std::vector<std::unique_ptr<Backend>> more_backends = {};
  /// Tells the server what backends can do, beside its engine, where set.
  std::shared_ptr<BackendHealth> health = {};
};

/// A running server: attention.v1, the Open Inference Protocol, health and
/// reflection over gRPC on one port; health and metrics over HTTP on another.
class Server {
 public:
  /// Listens and answers from the moment it returns. INVALID_ARGUMENT for
  /// options that make no sense, UNAVAILABLE where the port or the socket is
  /// taken; both messages name the option or the address. RESOURCE_EXHAUSTED
  /// where there are no threads or no memory to start with.
  static absl::StatusOr<std::unique_ptr<Server>> Start(
      const ServerOptions& options, TestHooks hooks = {});

  /// Drains with the options' drain time, if Drain() has not run yet.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  /// "127.0.0.1:8001", with the port that was really taken.
  const std::string& address() const { return address_; }
  int port() const { return port_; }
  /// The same of HTTP; empty where it is switched off.
  const std::string& http_address() const { return http_address_; }
  /// One line: what it listens on and what it runs on.
  std::string Summary() const;

  /// Has the callers file, the certificates and every folder of the model
  /// repository read again, changed or not, on threads of their own: the log
  /// says what came of it. A model whose folder has gone is unloaded, one whose
  /// folder is wrong now stays as it was.
  void ReadFilesAgain();

  /// Readiness turns to NOT_SERVING, new requests get UNAVAILABLE, those that
  /// run may finish within the drain time and are cancelled after it. Returns
  /// when all is quiet; true where nothing had to be cancelled.
  bool Drain();

 private:
  struct Impl;
  Server();

  std::unique_ptr<Impl> impl_;
  std::string address_;
  int port_ = 0;
  std::string http_address_;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_SERVER_H_
