#ifndef ATTENTION_SERVER_WIRE_INFER_REPLY_H_
#define ATTENTION_SERVER_WIRE_INFER_REPLY_H_

#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/problem.h"
#include "core/validate.h"
#include "inference/grpc_service.pb.h"
#include "server/memory/shared_memory_registry.h"
#include "server/wire/aligned_buffer.h"

namespace attention::server {

/// What a request wants back, in its order: "output", "weights" and "lse".
struct InferOutput {
  std::string name;
  /// Where the result goes; null: into the message.
  std::shared_ptr<SharedMemoryRegion> region;
  absl::Span<std::byte> place;  // in the region
};

/// The outputs that `request` names; `output` alone where it names none.
/// `regions` is null where shared memory is switched off. INVALID_ARGUMENT for
/// an unknown or repeated name, and what RegionOf(), FindRegion() and
/// SharedMemoryRegion::Bytes() refuse.
absl::StatusOr<std::vector<InferOutput>> ReadInferOutputs(
    const inference::ModelInferRequest& request,
    const SharedMemoryRegistry* regions);

/// A serialized ModelInferResponse whose outputs are computed in place, in the
/// message's own buffers or in shared memory.
class InferReplyBuilder {
 public:
  InferReplyBuilder(std::vector<InferOutput> outputs,
                    const ValidatedProblem& problem);
  InferReplyBuilder(const InferReplyBuilder&) = delete;
  InferReplyBuilder& operator=(const InferReplyBuilder&) = delete;

  /// Bytes of the whole message at most, results in shared memory aside;
  /// saturates at 2^63 - 1.
  int64_t Bytes() const;
  /// RESOURCE_EXHAUSTED where the message exceeds `limit` bytes;
  /// INVALID_ARGUMENT where a region has too little room for its output.
  absl::Status CheckFits(int64_t limit) const;
  absl::Status Allocate();
  AttentionOutputs Outputs();

  /// The message: `response` has every field but the outputs. Within a
  /// ModelStreamInferResponse on a stream. Once: it takes the memory with it.
  /// FAILED_PRECONDITION where a region was lost meanwhile.
  absl::StatusOr<grpc::ByteBuffer> Build(inference::ModelInferResponse response,
                                         bool on_stream) &&;

 private:
  struct Result {
    DataType type = DataType::kFloat32;
    Shape shape;
    int64_t bytes = 0;
    AlignedBuffer buffer;
    const InferOutput* wanted = nullptr;  // null: computed, but not sent

    bool in_message() const {
      return wanted != nullptr && wanted->region == nullptr;
    }
    std::byte* memory() {
      return wanted != nullptr && wanted->region != nullptr
                 ? wanted->place.data()
                 : buffer.data();
    }
  };

  bool NeedsBuffer(const Result& result) const;
  Result& ResultOf(const std::string& name);
  void Plan(Result& result, absl::string_view name, DataType type,
            const Shape& shape);

  const std::vector<InferOutput> outputs_;
  Result output_;
  Result weights_;
  Result lse_;
};

/// A serialized ModelStreamInferResponse with an error, which carries the id in
/// the way that Triton's clients expect; `status` is not OK.
grpc::ByteBuffer EncodeInferStreamError(const std::string& id,
                                        const absl::Status& status);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_WIRE_INFER_REPLY_H_
