#ifndef ATTENTION_TESTS_SUPPORT_CONNECTED_SERVER_H_
#define ATTENTION_TESTS_SUPPORT_CONNECTED_SERVER_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "attention_client/client.h"
#include "server/options/options.h"
#include "server/server.h"

namespace attention::test {

/// A real server on a free loopback port, and a client that is connected to it.
class ConnectedServer {
 public:
  /// Options for tests: two worker threads, logs of errors alone, and a backend
  /// by its name.
  static server::ServerOptions Options(const std::string& backend = "auto");

  /// Starts a server with these options, on a port of the system's choice
  /// whatever they say. `on_tile` as in server/server.h.
  static absl::StatusOr<ConnectedServer> Start(
      server::ServerOptions options = Options(),
      std::function<void()> on_tile = nullptr);

  server::Server& server() { return *server_; }
  const client::Client& client() const { return client_; }

  /// Another client of the same server; its options' target is set here.
  absl::StatusOr<client::Client> NewClient(
      client::ClientOptions options = {}) const;

 private:
  ConnectedServer(std::unique_ptr<server::Server> server,
                  client::Client client);

  std::unique_ptr<server::Server> server_;
  client::Client client_;
};

}  // namespace attention::test

#endif  // ATTENTION_TESTS_SUPPORT_CONNECTED_SERVER_H_
