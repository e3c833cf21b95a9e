#ifndef ATTENTION_BENCHMARKS_LOAD_API_H_
#define ATTENTION_BENCHMARKS_LOAD_API_H_

#include <grpcpp/support/byte_buffer.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "attention_client/client.h"
#include "core/tensor.h"

namespace attention::bench {

/// What is asked in every call: query, key and value of one shape.
struct LoadShape {
  int64_t batch = 2;
  int64_t heads = 1;
  int64_t length = 4;
  int64_t width = 8;
  int64_t hidden = 0;         // of additive scoring; 0: scaled dot product
  std::string type = "FP32";  // or FP16, BF16

  int64_t TensorBytes() const;
  /// Of the three tensors that go and the one that comes.
  int64_t CallBytes() const { return 4 * TensorBytes(); }
};

/// What a reply says beside its tensor.
struct ReplyFacts {
  std::string id;
  std::chrono::nanoseconds compute{0};
  std::chrono::nanoseconds queue{0};
};

/// One wire API: how a call of the shape is written and its reply read.
/// Encoding and decoding are part of what is measured.
class Api {
 public:
  virtual ~Api() = default;
  virtual const char* unary_method() const = 0;
  virtual const char* stream_method() const = 0;
  virtual grpc::ByteBuffer Encode(const std::string& id) const = 0;
  /// The result is read in full; an error within a stream's reply is one here.
  virtual absl::StatusOr<ReplyFacts> DecodeUnary(
      grpc::ByteBuffer& message) const = 0;
  virtual absl::StatusOr<ReplyFacts> DecodeStream(
      grpc::ByteBuffer& message) const = 0;
};

/// Query, key and value, normally distributed around 0; the same every time.
absl::StatusOr<std::vector<Tensor>> RandomInputs(const LoadShape& shape);

/// attention.v1, through our client library's own encoder and decoder.
absl::StatusOr<std::unique_ptr<Api>> MakeNativeApi(const LoadShape& shape);

/// The Open Inference Protocol; its replies say nothing of times. With a server
/// named, the tensors lie in shared memory that is registered there, which it
/// must allow, and every call's output goes to the same place.
absl::StatusOr<std::unique_ptr<Api>> MakeInferenceApi(
    const LoadShape& shape,
    const std::optional<client::ClientOptions>& shared_memory_server);

}  // namespace attention::bench

#endif  // ATTENTION_BENCHMARKS_LOAD_API_H_
