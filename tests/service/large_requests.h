#ifndef ATTENTION_TESTS_SERVICE_LARGE_REQUESTS_H_
#define ATTENTION_TESTS_SERVICE_LARGE_REQUESTS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tests/service/http_caller.h"
#include "tests/service/http_infer.h"
#include "tests/service/requests.h"
#include "tests/service/running_server.h"
#include "tests/service/wire_client.h"

/// Requests for which a server allocates much at once.
namespace attention::test {

/// More than gRPC 1.51 allocates at once where it reads from a socket, after
/// which it does not look whether it got it: 64 KiB, and what is before them.
inline constexpr int64_t kLarge = 128 << 10;

/// Query, key, value, output and weights of more than kLarge each.
inline v1::AttendRequest RequestOfLargeTensors() {
  v1::AttendRequest request;
  request.set_id("large");
  *request.mutable_query() = Filled(v1::DATA_TYPE_FP32, {512, 128}, 1);
  v1::KeyValueTensors& key_value = *request.mutable_key_value();
  *key_value.mutable_key() = Filled(v1::DATA_TYPE_FP32, {512, 128}, 1);
  *key_value.mutable_value() = Filled(v1::DATA_TYPE_FP32, {512, 256}, 1);
  request.set_return_weights(true);
  return request;
}

/// What became of RequestOfLargeTensors() on a stream.
inline absl::Status AskOnAStream(WireClient& client) {
  const auto stream = client.OpenStream(kAttendStream);
  stream->Write(RequestOfLargeTensors().SerializeAsString());
  stream->WritesDone();
  const std::optional<std::string> reply = stream->Read();
  if (!reply) return stream->Finish();
  v1::AttendStreamResponse response;
  if (!response.ParseFromString(*reply)) return absl::InternalError("no reply");
  return absl::Status(static_cast<absl::StatusCode>(response.error().code()),
                      response.error().message());
}

/// What became of a request over HTTP that is answered with `good`.
inline absl::Status StatusOfAnswer(const std::string& answer, int good) {
  if (HttpStatus(answer) == good) return absl::OkStatus();
  return absl::Status(HttpStatus(answer) == 429
                          ? absl::StatusCode::kResourceExhausted
                          : absl::StatusCode::kUnknown,
                      answer);
}

/// What became of large tensors over HTTP, in JSON.
inline absl::Status AskOverHttp(const RunningServer& server) {
  std::string body = R"({"inputs":[)";
  const char* comma = "";
  for (const char* name : {"query", "key", "value"}) {
    absl::StrAppend(&body, comma, R"({"name":")", name,
                    R"(","datatype":"FP32","shape":[512,128],"data":[1)");
    for (int i = 1; i < 512 * 128; ++i) body += ",1";
    body += "]}";
    comma = ",";
  }
  body += "]}";
  return StatusOfAnswer(HttpPost(server.http_address, kInferPath, body), 200);
}

}  // namespace attention::test

#endif  // ATTENTION_TESTS_SERVICE_LARGE_REQUESTS_H_
