#ifndef ATTENTION_SERVER_WIRE_REQUEST_DECODER_H_
#define ATTENTION_SERVER_WIRE_REQUEST_DECODER_H_

#include <grpcpp/support/slice.h>

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "attention/v1/attention.pb.h"
#include "core/worker_pool.h"
#include "server/wire/tensor_bytes.h"

namespace attention::server {

/// An AttendRequest apart from its tensors' elements, and those beside it. It
/// owns every byte.
class DecodedAttendRequest {
 public:
  /// Every field as protobuf's own parser would have it, with one difference:
  /// where a tensor's `data` is not empty, it may hold a mark of one byte; the
  /// elements are in Elements().
  const v1::AttendRequest& message() const { return message_; }

  /// The elements of `tensor`, the field of that name of this message ("query",
  /// "key", "w_q"), at any alignment.
  /// Those of a large tensor are there only after Gather(); those of lengths
  /// and masks at once.
  absl::Span<const std::byte> Elements(const std::string& field,
                                       const v1::Tensor& tensor) const;

  /// Brings the elements of large tensors to their places (see GatherAll).
  void Gather(WorkerPool* workers);

 private:
  friend class RequestDecoder;

  v1::AttendRequest message_;
  std::map<std::string, TensorBytes> elements_;
};

/// Decodes a serialized AttendRequest that came in `slices`, cut anywhere. Each
/// tensor's elements are copied once, or not at all where one slice holds them
/// (tensor_bytes.h); each slice that is not kept is released as it is read.
///
/// Repeated fields, oneofs and merges have protobuf's own meaning.
/// INVALID_ARGUMENT where the bytes are not a message, where any field in it is
/// unknown (a field that this version drops could have been a mask), where a
/// string is not UTF-8, or where what is no tensor element takes more than 64
/// KiB. RESOURCE_EXHAUSTED where memory runs out. A length that claims more
/// bytes than there are allocates nothing.
absl::StatusOr<DecodedAttendRequest> DecodeAttendRequest(
    std::vector<grpc::Slice> slices);

/// The same, whatever the size: DecodeAttendRequest() has a faster way for
/// small messages that are as they should be.
absl::StatusOr<DecodedAttendRequest> DecodeFieldByField(
    std::vector<grpc::Slice> slices);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_WIRE_REQUEST_DECODER_H_
