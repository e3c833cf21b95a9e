#include "tests/support/connected_server.h"

#include <utility>

namespace attention::test {

server::ServerOptions ConnectedServer::Options(const std::string& backend) {
  server::ServerOptions options;
  options.backend = backend;
  options.grpc_port = 0;
  options.http = false;
  options.worker_threads = 2;
  options.log_level = "error";
  return options;
}

absl::StatusOr<ConnectedServer> ConnectedServer::Start(
    server::ServerOptions options, std::function<void()> on_tile) {
  options.grpc_port = 0;
  options.http = false;
  auto started =
      server::Server::Start(options, {.on_tile = std::move(on_tile)});
  if (!started.ok()) return started.status();
  client::ClientOptions client_options;
  client_options.target = (*started)->address();
  auto connected = client::Client::Create(client_options);
  if (!connected.ok()) return connected.status();
  return ConnectedServer(*std::move(started), *std::move(connected));
}

absl::StatusOr<client::Client> ConnectedServer::NewClient(
    client::ClientOptions options) const {
  options.target = server_->address();
  return client::Client::Create(options);
}

ConnectedServer::ConnectedServer(std::unique_ptr<server::Server> server,
                                 client::Client client)
    : server_(std::move(server)), client_(std::move(client)) {}

}  // namespace attention::test
