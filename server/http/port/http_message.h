#ifndef ATTENTION_SERVER_HTTP_PORT_HTTP_MESSAGE_H_
#define ATTENTION_SERVER_HTTP_PORT_HTTP_MESSAGE_H_

#include <grpcpp/support/slice.h>

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/callers/caller.h"
#include "server/http/port/counted_bytes.h"
#include "server/http/port/inference_route.h"

namespace attention::server {

/// What came over HTTP; HEAD is told as GET.
struct HttpRequest {
  std::string method;  // "GET", "POST"
  std::string path;    // "/metrics", without what follows a '?'
  /// Names in lower case; of two that are equal, the first.
  std::map<std::string, std::string> headers = {};
  std::string peer = {};     // "ipv4:127.0.0.1:50000", as gRPC has it
  std::string address = {};  // "127.0.0.1", whose share the body takes
  /// When its head had come: its timeout counts from there, as in gRPC.
  std::chrono::system_clock::time_point begin =
      std::chrono::system_clock::now();
  bool encrypted = false;
  /// Names in the certificate of the connection.
  std::vector<std::string> certificate_names = {};
  CountedBytes body = {};
  /// What the path means to the Open Inference Protocol, once it was looked
  /// for; none where it means nothing.
  std::optional<InferenceRoute> route = {};
  /// Who makes it, once that was asked; null where everybody may.
  std::optional<std::shared_ptr<const Caller>> caller = {};

  /// A header's value, "" where there is none.
  const std::string& Header(const std::string& name) const {
    static const std::string* const none = new std::string();
    const auto found = headers.find(name);
    return found == headers.end() ? *none : found->second;
  }
};

struct HttpReply {
  int status = 200;
  std::string content_type = "application/json";
  std::string body = {};
  /// In place of `body`, where there are any.
  std::vector<grpc::Slice> pieces = {};
  std::vector<std::pair<std::string, std::string>> headers = {};
  /// What is held until the reply is out.
  std::shared_ptr<void> held = nullptr;
};

/// `{"error": message}`.
HttpReply HttpError(int status, const std::string& message);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_HTTP_PORT_HTTP_MESSAGE_H_
