#ifndef ATTENTION_SERVER_HTTP_PROTOCOL_INFERENCE_CALLS_H_
#define ATTENTION_SERVER_HTTP_PROTOCOL_INFERENCE_CALLS_H_

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/callers/caller.h"
#include "server/http/port/http_message.h"
#include "server/http/port/inference_route.h"
#include "server/services/call_counter.h"
#include "server/services/inference_management.h"

namespace attention::server {

/// The Open Inference Protocol over HTTP, for all that is no inference: JSON to
/// what InferenceManagement is asked, and back. Calls are counted with the RPCs
/// that are the same.
class InferenceCalls {
 public:
  /// One that came over HTTP.
  struct Call {
    const InferenceRoute& route;
    std::shared_ptr<CallCounter::Call> counted;  // by Begin()
    const Caller* caller;                        // null: everybody may call
    absl::string_view body;
    InferenceManagement::Waiter waiter;
  };
  using Reply = std::function<void(HttpReply)>;

  /// The arguments outlive it and its calls.
  InferenceCalls(InferenceManagement& management, CallCounter& counter)
      : management_(management), counter_(counter) {}

  /// Begins to count a call; nothing where it is an inference.
  std::shared_ptr<CallCounter::Call> Begin(InferenceMethod method) const;

  /// `reply` is called once, here or on the repository's thread, and `counted`
  /// ended. Where the body is not what the route takes they are not, and the
  /// result is INVALID_ARGUMENT.
  absl::Status Ask(const Call& call, const Reply& reply);

 private:
  InferenceManagement& management_;
  CallCounter& counter_;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_HTTP_PROTOCOL_INFERENCE_CALLS_H_
