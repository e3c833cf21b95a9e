#ifndef ATTENTION_SERVER_SERVICES_CALL_COUNTER_H_
#define ATTENTION_SERVER_SERVICES_CALL_COUNTER_H_

#include <grpcpp/support/server_interceptor.h>
#include <grpcpp/support/status.h>

#include <array>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "server/telemetry/request_metrics.h"

namespace attention::server {

/// Counts, for metrics, the calls that carry no tensors: health, reflection,
/// metadata, model control and so on, whoever's service they are. Those that
/// carry tensors are RequestMetrics' and pass by here at the cost of comparing
/// names. May be used from several threads at once.
class CallCounter {
 public:
  struct OfMethod {
    std::string type;  // "unary", "server_stream", ...
    std::string service;
    std::string method;
    RequestMetrics::OfRpc counts;
  };

  /// One call, from its making to its end: CANCELLED where nobody said how.
  class Call {
   public:
    Call(std::mutex& mutex, RequestMetrics::OfRpc& counts);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

    void NoteReceived();
    void NoteSent();
    /// The first one counts: what answers may find no memory after it.
    void End(grpc::StatusCode code);

   private:
    std::mutex& mutex_;
    RequestMetrics::OfRpc& counts_;
    const std::chrono::steady_clock::time_point begin_ =
        std::chrono::steady_clock::now();
    bool ended_ = false;
  };

  /// A unary call of the method that came another way than over gRPC. The
  /// counter outlives it.
  std::unique_ptr<Call> Begin(const std::string& service,
                              const std::string& method);

  /// For grpc::ServerBuilder, with the names of its services. Calls of methods
  /// that none of them has are counted as those of one. The counter outlives
  /// the server.
  std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>
  NewFactory(const std::vector<std::string>& services);

  /// The methods that have been called.
  std::vector<OfMethod> Read() const;

 private:
  class Factory;
  class Interceptor;

  // `name` is the method's whole name.
  RequestMetrics::OfRpc& Find(const std::string& name, const char* type);

  // By the method's whole name, of which there are as many as are registered,
  // and one more.
  std::map<std::string, OfMethod> methods_;
  mutable std::mutex mutex_;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_SERVICES_CALL_COUNTER_H_
