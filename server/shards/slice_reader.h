#ifndef ATTENTION_SERVER_SHARDS_SLICE_READER_H_
#define ATTENTION_SERVER_SHARDS_SLICE_READER_H_

#include <grpcpp/support/slice.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace attention::server {

/// Reads a serialized message field by field where it lies in slices, cut
/// anywhere, and shares what is taken from it. The slices outlive it.
class SliceReader {
 public:
  explicit SliceReader(absl::Span<const grpc::Slice> slices);

  bool done() const { return left_ == 0; }

  /// The next field's number, and the bytes of its value, which Take() or
  /// Skip() must pass before the next call. False where the bytes are no field,
  /// or one of another kind than those with a length.
  bool NextField(uint32_t& number, uint64_t& bytes);

  /// The next `bytes`, of which there are as many, behind those of `out`. They
  /// are shared and not copied.
  void Take(uint64_t bytes, std::vector<grpc::Slice>& out);
  void Skip(uint64_t bytes);

 private:
  bool ReadVarint(uint64_t& value);
  // Bytes of the current slice that are not read yet, at most `most`.
  size_t Here(uint64_t most) const;
  void Advance(size_t bytes);

  absl::Span<const grpc::Slice> slices_;
  size_t at_ = 0;  // in the first of them
  uint64_t left_ = 0;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_SHARDS_SLICE_READER_H_
