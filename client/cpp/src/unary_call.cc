#include "client/cpp/src/unary_call.h"

#include <grpcpp/completion_queue.h>

namespace attention::client {

grpc::Status CallUnary(grpc::GenericStub& stub, grpc::ClientContext& context,
                       const char* method, const grpc::ByteBuffer& request,
                       grpc::ByteBuffer& reply) {
  grpc::CompletionQueue queue;
  const auto call = stub.PrepareUnaryCall(&context, method, request, &queue);
  call->StartCall();
  grpc::Status status;
  call->Finish(&reply, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) {
  }
  return status;
}

}  // namespace attention::client
