#ifndef ATTENTION_CLIENT_UNARY_CALL_H_
#define ATTENTION_CLIENT_UNARY_CALL_H_

#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/status.h>

namespace attention::client {

/// A blocking call, as a generated stub makes it for messages that are classes.
grpc::Status CallUnary(grpc::GenericStub& stub, grpc::ClientContext& context,
                       const char* method, const grpc::ByteBuffer& request,
                       grpc::ByteBuffer& reply);

}  // namespace attention::client

#endif  // ATTENTION_CLIENT_UNARY_CALL_H_
