#ifndef ATTENTION_SERVER_MEMORY_RECEIVED_SLICES_H_
#define ATTENTION_SERVER_MEMORY_RECEIVED_SLICES_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/types/span.h"

namespace attention::server {

/// Lets go of slices of a received message; they are empty after it.
///
/// gRPC 1.51 ends the process where the last reference to such a slice is
/// released by a thread of ours while its memory is short: what then has to run
/// needs an ExecCtx, which only gRPC's own functions make. Destroying a byte
/// buffer does, so the last references are put into one.
void ReleaseSlices(absl::Span<grpc::Slice> slices);

/// A slice of a received message, which may be released on any thread.
class ReceivedSlice {
 public:
  ReceivedSlice() = default;
  explicit ReceivedSlice(grpc::Slice slice) : slice_(std::move(slice)) {}
  ReceivedSlice(ReceivedSlice&& other) noexcept
      : slice_(std::exchange(other.slice_, std::nullopt)) {}
  ReceivedSlice& operator=(ReceivedSlice&& other) noexcept {
    std::swap(slice_, other.slice_);
    return *this;
  }
  ~ReceivedSlice() {
    if (slice_.has_value()) ReleaseSlices(absl::MakeSpan(&*slice_, 1));
  }

  /// The slice, for who releases several at once.
  grpc::Slice Take() {
    return std::exchange(slice_, std::nullopt).value_or(grpc::Slice());
  }

 private:
  std::optional<grpc::Slice> slice_;
};

/// A received message, which may be released on any thread.
class ReceivedMessage {
 public:
  ReceivedMessage() = default;
  // Implicit: a message is its slices.
  ReceivedMessage(std::vector<grpc::Slice> slices)  // NOLINT(*explicit*)
      : slices_(std::move(slices)) {}
  /// What gRPC has handed over; `message` is empty after it.
  explicit ReceivedMessage(grpc::ByteBuffer& message);
  ReceivedMessage(ReceivedMessage&& other) noexcept
      : slices_(std::exchange(other.slices_, {})) {
    whole_.Swap(&other.whole_);
  }
  ReceivedMessage& operator=(ReceivedMessage&& other) noexcept {
    std::swap(slices_, other.slices_);
    whole_.Swap(&other.whole_);
    return *this;
  }
  ~ReceivedMessage() {
    if (!slices_.empty()) ReleaseAll();
  }

  absl::Span<const grpc::Slice> slices() const { return slices_; }
  /// Of all slices together.
  int64_t bytes() const;
  /// Lets go of one slice, which is empty after it.
  void Release(size_t i) {
    if (slices_.size() == 1) return ReleaseAll();
    ReleaseSlices(absl::MakeSpan(slices_).subspan(i, 1));
  }

 private:
  void ReleaseAll();

  std::vector<grpc::Slice> slices_;
  // gRPC's own buffer of a message of one slice. It is let go of behind the
  // slice, so that none has to be made to release that one in (see
  // ReleaseSlices()).
  grpc::ByteBuffer whole_;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_MEMORY_RECEIVED_SLICES_H_
