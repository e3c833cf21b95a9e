// The body of an inference over HTTP: JSON, and elements behind it. What is
// accepted is JSON, also where elements are read by our own reader, and takes
// no more memory than it asked for; it has a reply within its bound, which is
// JSON again.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/batch.h"
#include "server/http/port/inference_route.h"
#include "server/http/protocol/json_infer_wire.h"
#include "server/models/model_repository.h"
#include "server/models/model_table.h"
#include "server/request/results.h"
#include "tests/fuzz/compute_results.h"
#include "tests/fuzz/expect.h"
#include "tests/fuzz/quiet_protobuf.h"

namespace attention::server {
namespace {

constexpr int64_t kMostReplyBytes = 1 << 20;

std::string TextOf(grpc::ByteBuffer& message) {
  std::vector<grpc::Slice> slices;
  Expect(message.Dump(&slices).ok(), "a reply has its slices");
  std::string text;
  for (const grpc::Slice& slice : slices) {
    text.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return text;
}

// As a server takes it; `json_bytes` is the header.
void Serve(const std::string& body, std::optional<std::string> json_bytes) {
  static const auto* const repository = new ModelRepository;
  static const auto* const models = new ModelTable(*repository);
  JsonInferHead head;
  head.model = "scaled_dot_product_attention";
  head.json_bytes = std::move(json_bytes);
  const std::string text = body.substr(
      0, head.json_bytes ? std::strtoull(head.json_bytes->c_str(), nullptr, 10)
                         : body.size());
  const auto described = std::make_shared<JsonInferReply>();
  JsonInferWire wire(*models, /*regions=*/{}, std::move(head), described);
  int64_t held = 0;
  const auto hold = [&held](int64_t bytes) {
    held += bytes;
    return absl::OkStatus();
  };
  const auto request =
      wire.Decode(std::vector<grpc::Slice>{grpc::Slice(body)}, hold);
  Expect(held <= static_cast<int64_t>(8 * body.size()),
         "elements take no more memory than the text has room for");
  if (!request.ok()) return;
  Expect(nlohmann::json::accept(text), "what is accepted is JSON");
  const auto valid = ValidateBatch(request->problem);
  if (!valid.ok()) return;
  Results results(request->results, *valid);
  const int64_t other = wire.BytesBeside(results.Bytes());
  if (!results.CheckFit(other, kMostReplyBytes).ok() ||
      !results.Allocate().ok()) {
    return;
  }
  wire.Gather(nullptr);
  ComputeResults(*request, *valid, results);
  // Whatever numbers it gives are text.
  for (Result& result : results.sent()) {
    if (result.bytes > 0) {
      std::memset(result.buffer.data(), static_cast<int>(body.size()),
                  static_cast<size_t>(result.bytes));
    }
  }
  const int64_t bound = results.Bytes() + other;
  auto reply = wire.Encode(results.sent(), {});
  Expect(static_cast<int64_t>(reply.bytes().Length()) <= bound,
         "a reply that fits is not longer than its bound");
  const std::string whole = TextOf(reply.bytes());
  const std::string json =
      whole.substr(0, described->json_bytes.value_or(whole.size()));
  Expect(nlohmann::json::accept(json), "a reply is JSON");
}

void Run(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  static_cast<void>(FindInferenceRoute(text));
  Serve(text, std::nullopt);
  // The first line is the header, as it came.
  const size_t line = text.find('\n');
  if (line != std::string::npos) {
    Serve(text.substr(line + 1), text.substr(0, line));
  }
}

}  // namespace
}  // namespace attention::server

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  attention::QuietenProtobuf();
  attention::server::Run(data, size);
  return 0;
}
