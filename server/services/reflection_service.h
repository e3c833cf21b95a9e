#ifndef ATTENTION_SERVER_SERVICES_REFLECTION_SERVICE_H_
#define ATTENTION_SERVER_SERVICES_REFLECTION_SERVICE_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <list>
#include <mutex>
#include <string>
#include <vector>

#include "grpc/reflection/v1/reflection.grpc.pb.h"
#include "grpc/reflection/v1alpha/reflection.grpc.pb.h"
#include "server/scheduling/active_calls.h"

namespace attention::server {

/// What the server's API looks like, for tools that have no copy of it: from
/// the descriptors that are compiled in. gRPC's own keeps a thread for each
/// stream.
class Reflection {
 public:
  using Reactor = grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;
  /// Streams that are open at once. One more ends that which has been silent
  /// for longest (CANCELLED).
  static constexpr size_t kMostStreams = 64;

  /// The names of the server's services, "package.Service", and whose calls
  /// these are; it outlives this.
  Reflection(std::vector<std::string> services, const ActiveCalls& calls);

  /// A stream of one of the two services: their messages are the same bytes.
  /// Refused where its peer has too many open calls.
  Reactor* Begin(grpc::CallbackServerContext& context);

  grpc::reflection::v1::ServerReflectionResponse Answer(
      const grpc::reflection::v1::ServerReflectionRequest& request) const;

 private:
  class Stream;

  const std::vector<std::string> services_;
  const ActiveCalls& calls_;
  std::mutex mutex_;
  std::list<Stream*> streams_;  // the longest silent one is the first
};

/// One of the two services, whose generated class is `Generated`.
template <typename Generated>
class ReflectionOver final
    : public Generated::template WithRawCallbackMethod_ServerReflectionInfo<
          typename Generated::Service> {
 public:
  explicit ReflectionOver(Reflection& reflection) : reflection_(reflection) {}
  Reflection::Reactor* ServerReflectionInfo(
      grpc::CallbackServerContext* context) override {
    return reflection_.Begin(*context);
  }

 private:
  Reflection& reflection_;
};

using ReflectionService =
    ReflectionOver<grpc::reflection::v1::ServerReflection>;
using OldReflectionService =
    ReflectionOver<grpc::reflection::v1alpha::ServerReflection>;

}  // namespace attention::server

#endif  // ATTENTION_SERVER_SERVICES_REFLECTION_SERVICE_H_
