#ifndef ATTENTION_SERVER_HTTP_PROTOCOL_INFERENCE_API_H_
#define ATTENTION_SERVER_HTTP_PROTOCOL_INFERENCE_API_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/engine.h"
#include "server/http/port/http_exchange.h"
#include "server/http/port/inference_route.h"
#include "server/http/protocol/inference_calls.h"
#include "server/memory/shared_memory_registry.h"
#include "server/models/model_table.h"
#include "server/options/options.h"
#include "server/resident/resident_store.h"
#include "server/scheduling/active_calls.h"
#include "server/scheduling/task.h"
#include "server/services/call_counter.h"
#include "server/services/inference_management.h"
#include "server/telemetry/refusal.h"

namespace boost::asio {
class thread_pool;
}  // namespace boost::asio

namespace attention::server {

/// The Open Inference Protocol over HTTP, with Triton's extensions: JSON, and
/// elements in it, behind it or in shared memory.
///
/// It is another form of inference.GRPCInferenceService and nothing else: what
/// is asked about the server, its models and its memory is asked of the same
/// InferenceManagement, and an inference becomes a Task as it does there.
class InferenceApi {
 public:
  struct Parts {
    const ServerOptions& options;
    const Engine& engine;
    TaskServices services;
    ActiveCalls& calls;
    const ModelTable& models;
    SharedMemoryRegistry& regions;
    ResidentStore& resident;
    std::shared_ptr<const ByteBudget> bodies;
    InferenceManagement& management;
    CallCounter& counter;  // of calls that are no inference
    /// Why it is not served without encryption; empty where it is.
    std::string no_plain_text;
  };

  /// What the parts refer to outlives it.
  explicit InferenceApi(Parts parts);
  /// When what was begun on its threads has returned. Replies may still come.
  ~InferenceApi();
  InferenceApi(const InferenceApi&) = delete;
  InferenceApi& operator=(const InferenceApi&) = delete;

  /// How long the body of a request may be, by its headers; its errors are
  /// those that are known by then. Notes the route and the caller.
  absl::StatusOr<int64_t> MostBodyBytes(HttpRequest& request) const;

  /// Counts a request that was refused before it came here, and logs it where
  /// it is an inference, as those that are refused later are.
  void OnRefusal(const HttpRequest& request, const absl::Status& status,
                 Refusal refusal) const;

  /// Answers the request, on other threads. Its path is one of inference.
  void Answer(const std::shared_ptr<HttpExchange>& exchange);

 private:
  using CallerPtr = std::shared_ptr<const Caller>;
  using CountedCall = std::shared_ptr<CallCounter::Call>;

  absl::StatusOr<CallerPtr> CallerOf(const HttpRequest& request) const;
  // What holds for every path, once for a request: notes the caller.
  absl::Status Check(HttpRequest& request) const;
  // Ends the count of a call that is not answered; of an inference, which is
  // not `counted` before there is a Task, all of it.
  void CountTurnedAway(InferenceMethod method, const CountedCall& counted,
                       const absl::Status& status) const;
  // The routes that there are; a failure is still to be answered and counted.
  absl::Status AnswerRoute(const std::shared_ptr<HttpExchange>& exchange,
                           const InferenceRoute& route,
                           const CountedCall& counted);
  absl::Status Manage(const std::shared_ptr<HttpExchange>& exchange,
                      const InferenceRoute& route, const CallerPtr& caller,
                      const CountedCall& counted);
  absl::Status Infer(const std::shared_ptr<HttpExchange>& exchange,
                     const InferenceRoute& route, CallerPtr caller);

  const Parts parts_;
  InferenceCalls calls_;
  // Reads JSON; what is computed at once, too.
  const std::shared_ptr<boost::asio::thread_pool> threads_;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_HTTP_PROTOCOL_INFERENCE_API_H_
