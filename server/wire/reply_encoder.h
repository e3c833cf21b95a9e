#ifndef ATTENTION_SERVER_WIRE_REPLY_ENCODER_H_
#define ATTENTION_SERVER_WIRE_REPLY_ENCODER_H_

#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/problem.h"
#include "core/validate.h"
#include "server/wire/aligned_buffer.h"
#include "server/wire/wire_request.h"

namespace attention::server {

/// A serialized AttendResponse whose tensors are computed in place: first their
/// sizes are known and can be refused, then the memory is there for the engine
/// to write to, then that same memory becomes the message.
class ReplyBuilder {
 public:
  /// Nothing is allocated yet. The id is UTF-8.
  ReplyBuilder(std::string id, const ValidatedProblem& problem);

  /// Bytes of the whole message at most; saturates at 2^63 - 1.
  int64_t Bytes() const;

  /// OK where the message fits into `limit` bytes, else RESOURCE_EXHAUSTED with
  /// the name of the output that does not.
  absl::Status CheckFits(int64_t limit) const;

  /// Memory for the results. RESOURCE_EXHAUSTED where there is none; Bytes()
  /// must fit into memory's address space (CheckFits sees to it).
  absl::Status Allocate();

  /// Where the results go, after Allocate().
  AttentionOutputs Outputs();

  /// The message, as an AttendResponse or within an AttendStreamResponse. Once:
  /// it takes the memory with it.
  grpc::ByteBuffer Build(const RequestFacts& facts) &&;
  grpc::ByteBuffer BuildForStream(const RequestFacts& facts) &&;

 private:
  struct Result {
    int field_number;  // in AttendResponse
    const char* name;
    DataType type;
    Shape shape;
    int64_t bytes;       // of its elements
    std::string header;  // of the message, up to the first of them
    AlignedBuffer buffer;
  };

  void Add(int field_number, const char* name, DataType type,
           const Shape& shape);
  std::vector<grpc::Slice> Slices(const RequestFacts& facts);

  std::string id_;
  std::vector<Result> results_;  // output, then those that were asked for
  bool has_weights_ = false;
  bool has_lse_ = false;
};

/// A serialized AttendStreamResponse with an error; `status` is not OK.
grpc::ByteBuffer EncodeStreamError(const std::string& id,
                                   const absl::Status& status);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_WIRE_REPLY_ENCODER_H_
