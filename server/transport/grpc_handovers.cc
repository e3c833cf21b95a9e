#include "server/transport/grpc_handovers.h"

#include <grpcpp/server_builder.h>

#include <utility>

namespace attention::server {

std::vector<Acceptor::Serve> Handovers(
    int count, const std::shared_ptr<grpc::ServerCredentials>& credentials,
    grpc::ServerBuilder& builder) {
  using Builder = grpc::ServerBuilder::experimental_type;
  std::vector<Acceptor::Serve> handovers;
  for (int i = 0; i < count; ++i) {
    std::shared_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor =
        builder.experimental().AddExternalConnectionAcceptor(
            Builder::ExternalConnectionType::FROM_FD, credentials);
    handovers.emplace_back([acceptor = std::move(acceptor)](int socket) {
      grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters
          connection;
      connection.fd = socket;
      acceptor->HandleNewConnection(&connection);
    });
  }
  return handovers;
}

}  // namespace attention::server
