// Calls an attention server from C++: one call, and then several over a stream.
//
//   attention_example [HOST:PORT]
#include <attention_client/client.h>

#include <cstdio>
#include <string>
#include <vector>

namespace client = attention::client;
using attention::Tensor;

namespace {

// Two sequences of three tokens, each token a vector of two numbers. A sequence
// attends to itself: the same tensor is query, key and value.
client::AttendRequest SelfAttention() {
  const Tensor tokens = Tensor::FromFloats({2, 3, 2}, {1, 0, 0, 1, 1, 1,  //
                                                       2, 0, 0, 2, 9, 9});
  client::AttendRequest request;
  request.query = tokens;
  request.key = tokens;
  request.value = tokens;
  // The second sequence has two tokens only; its third is padding.
  request.valid_lens = Tensor::FromInts({2}, {3, 2});
  request.return_weights = true;
  return request;
}

void PrintRows(const char* name, const Tensor& tensor) {
  const std::vector<float> values = tensor.ToFloats();
  const auto width = static_cast<size_t>(tensor.shape().back());
  std::printf("%s %s\n", name,
              attention::ShapeToString(tensor.shape()).c_str());
  for (size_t i = 0; i < values.size(); ++i) {
    std::printf(i % width == width - 1 ? " %6.3f\n" : " %6.3f", values[i]);
  }
}

}  // namespace

int main(int argc, char** argv) {
  // A client is a connection. Give it channel credentials for TLS.
  client::ClientOptions options;
  if (argc > 1) options.target = argv[1];
  options.deadline = std::chrono::seconds(10);
  auto connected = client::Client::Create(options);
  if (!connected.ok()) {
    std::fprintf(stderr, "%s\n", connected.status().ToString().c_str());
    return 1;
  }

  // One call. Every error has the server's code and names the field at fault.
  auto result = connected->Attend(SelfAttention());
  if (!result.ok()) {
    std::fprintf(stderr, "%s\n", result.status().ToString().c_str());
    return 1;
  }
  PrintRows("output", result->output);
  PrintRows("weights", *result->weights);
  std::printf("answered by %s\n", result->backend.c_str());

  // Several over one stream, answered as they finish: here one for each rule
  // that hides the future from a sequence's tokens.
  std::vector<client::AttendRequest> requests(3, SelfAttention());
  requests[0].causal = client::Causal::kNone;
  requests[1].causal = client::Causal::kTopLeft;
  requests[2].window_left = 0;  // each token sees itself alone
  requests[2].window_right = 0;
  bool all_ok = true;
  const auto status = connected->AttendMany(
      requests, [&](size_t index, absl::StatusOr<client::AttendResult> reply) {
        all_ok = all_ok && reply.ok();
        std::printf("request %zu: %s\n", index,
                    reply.status().ToString().c_str());
      });
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    return 1;
  }
  return all_ok ? 0 : 1;
}
