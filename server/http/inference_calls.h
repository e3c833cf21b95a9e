#ifndef ATTENTION_SERVER_HTTP_INFERENCE_CALLS_H_
#define ATTENTION_SERVER_HTTP_INFERENCE_CALLS_H_

#include <grpcpp/channel.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "inference/grpc_service.grpc.pb.h"
#include "server/http/http_exchange.h"
#include "server/http/inference_route.h"

namespace attention::server {

/// Asks this process's own gRPC service what came over HTTP, for all that is no
/// inference.
class InferenceCalls {
 public:
  explicit InferenceCalls(const std::shared_ptr<grpc::Channel>& channel);
  /// When every call has ended.
  ~InferenceCalls();

  /// Answers the exchange, from a thread of gRPC's. INVALID_ARGUMENT, and
  /// nothing is asked, where the body is not what the route takes. `metadata`
  /// is legal in gRPC.
  absl::Status Ask(const std::shared_ptr<HttpExchange>& exchange,
                   const InferenceRoute& route,
                   const std::map<std::string, std::string>& metadata,
                   std::chrono::system_clock::time_point deadline);

 private:
  struct Context;
  template <typename Request, typename Response>
  struct Call;

  template <typename Request, typename Response, typename Method,
            typename Write>
  void Start(const Context& context, Method method, Request request,
             Write write);
  absl::Status AskAboutModels(const Context& context);
  absl::Status AskAboutRepository(const Context& context);
  absl::Status AskAboutSystemMemory(const Context& context);
  absl::Status AskAboutCudaMemory(const Context& context);
  absl::Status AskAboutSettings(const Context& context);

  const std::unique_ptr<inference::GRPCInferenceService::Stub> stub_;
  std::mutex mutex_;
  std::condition_variable ended_;
  int64_t open_ = 0;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_HTTP_INFERENCE_CALLS_H_
