#include "server/memory/received_slices.h"

#include "absl/algorithm/container.h"

namespace attention::server {

void ReleaseSlices(absl::Span<grpc::Slice> slices) {
  const auto is_empty = [](const grpc::Slice& slice) {
    return slice.size() == 0;
  };
  if (absl::c_all_of(slices, is_empty)) return;
  // Destroyed at the end, after the references that are dropped here.
  const grpc::ByteBuffer last(slices.data(), slices.size());
  for (grpc::Slice& slice : slices) slice = grpc::Slice();
}

ReceivedMessage::ReceivedMessage(grpc::ByteBuffer& message) {
  grpc::Slice slice;
  if (message.TrySingleSlice(&slice).ok()) {
    slices_.push_back(std::move(slice));
    whole_.Swap(&message);
    return;
  }
  if (!message.Dump(&slices_).ok()) slices_.clear();
  message.Clear();
}

void ReceivedMessage::ReleaseAll() {
  if (!whole_.Valid()) return ReleaseSlices(absl::MakeSpan(slices_));
  slices_.front() = grpc::Slice();
  whole_.Clear();
}

int64_t ReceivedMessage::bytes() const {
  int64_t bytes = 0;
  for (const grpc::Slice& slice : slices_) {
    bytes += static_cast<int64_t>(slice.size());
  }
  return bytes;
}

}  // namespace attention::server
