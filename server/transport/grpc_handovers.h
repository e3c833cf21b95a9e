#ifndef ATTENTION_SERVER_TRANSPORT_GRPC_HANDOVERS_H_
#define ATTENTION_SERVER_TRANSPORT_GRPC_HANDOVERS_H_

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>

#include <memory>
#include <vector>

#include "server/transport/acceptor.h"

namespace attention::server {

/// Ways of giving sockets to the gRPC server that `builder` is about to start,
/// `count` of them, for Acceptor.
std::vector<Acceptor::Serve> Handovers(
    int count, const std::shared_ptr<grpc::ServerCredentials>& credentials,
    grpc::ServerBuilder& builder);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_TRANSPORT_GRPC_HANDOVERS_H_
