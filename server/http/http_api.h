#ifndef ATTENTION_SERVER_HTTP_HTTP_API_H_
#define ATTENTION_SERVER_HTTP_HTTP_API_H_

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/http/port/http_exchange.h"
#include "server/http/port/http_message.h"
#include "server/http/shared_page.h"
#include "server/telemetry/refusal.h"

namespace attention::server {

class InferenceApi;

/// What there is to ask over HTTP:
///
///   /v2/health/live     200 from the first moment to the last
///   /v2/health/started  200 once the server has started
///   /v2/health/ready    200 while it serves; 503 while it starts and drains,
///                       and where no backend is left that computes
///   /metrics            for Prometheus
///   /v2 and below it    the Open Inference Protocol, where it is served
///
/// May be used from several threads at once.
class HttpApi {
 public:
  struct Sources {
    std::function<bool()> ready;
    std::function<std::string()> metrics;  // in Prometheus' text form
    InferenceApi* inference = nullptr;     // null: not served
  };

  /// `with_inference`: it is to be served, once StartServing() brings it.
  explicit HttpApi(bool with_inference) : with_inference_(with_inference) {}

  /// The start is over; before it, all but live is answered with 503. The
  /// sources are asked until StopServing(). Throws std::system_error where
  /// there is no thread.
  void StartServing(Sources sources);

  /// Nothing is asked of the sources any more; metrics that are waited for get
  /// no reply.
  void StopServing();

  /// As HttpHandlers has them.
  static bool IsProbe(const HttpRequest& request);
  absl::StatusOr<int64_t> MostBodyBytes(HttpRequest& request) const;
  void OnRefusal(const HttpRequest& request, const absl::Status& status,
                 Refusal refusal) const;
  void Answer(const std::shared_ptr<HttpExchange>& exchange) const;

  /// The answer to what is neither inference nor metrics that can be had.
  HttpReply Answer(const HttpRequest& request) const;

 private:
  // Of whom the request is; null where it is not for inference.
  InferenceApi* InferenceOf(const HttpRequest& request) const;
  // Of what is neither health nor metrics, and has nobody to answer it.
  absl::Status WhyNotServed(const HttpRequest& request) const;
  HttpReply Health(const std::string& what) const;

  const bool with_inference_;
  mutable std::mutex mutex_;
  Sources sources_;                      // empty before
  std::shared_ptr<SharedPage> metrics_;  // null before, and after
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_HTTP_HTTP_API_H_
