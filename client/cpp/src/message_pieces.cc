#include "client/cpp/src/message_pieces.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <memory>
#include <utility>

#include "attention/v1/attention.pb.h"
#include "client/cpp/src/wire_tensor.h"

namespace attention::client {
namespace {

namespace pb = google::protobuf;
using pb::internal::WireFormatLite;

// Smaller tensors are copied: that costs less than a slice of their own.
constexpr int64_t kLeastBytesShared = 16 << 10;

// A slice of the tensor's own bytes.
grpc::Slice Share(const Tensor& tensor) {
  using Bytes = std::shared_ptr<const std::byte[]>;
  auto owner = std::make_unique<Bytes>(tensor.shared_bytes());
  // gRPC takes memory that it may write to, and does not write to it.
  void* bytes = const_cast<std::byte*>(owner->get());
  const auto destroy = [](void* kept) { delete static_cast<Bytes*>(kept); };
  return {bytes, static_cast<size_t>(tensor.byte_size()), destroy,
          owner.release()};
}

}  // namespace

void MessagePieces::Append(absl::string_view text) {
  text_.append(text.data(), text.size());
  bytes_ += static_cast<int64_t>(text.size());
}

void MessagePieces::Append(int field_number, MessagePieces inner) {
  AppendHeader(field_number, inner.bytes_);
  bytes_ += inner.bytes_;
  if (inner.shared_.empty()) {
    text_ += inner.text_;
    return;
  }
  inner.shared_.front().text_before.insert(0, text_);
  for (Shared& shared : inner.shared_) shared_.push_back(std::move(shared));
  text_ = std::move(inner.text_);
}

void MessagePieces::Append(int field_number, const Tensor& tensor) {
  MessagePieces inner;
  v1::Tensor header;
  DescribeTensor(tensor, header);
  inner.Append(header.SerializeAsString());
  if (const int64_t size = tensor.byte_size(); size > 0) {
    inner.AppendHeader(v1::Tensor::kDataFieldNumber, size);
    if (size < kLeastBytesShared) {
      inner.Append({reinterpret_cast<const char*>(tensor.data()),
                    static_cast<size_t>(size)});
    } else {
      inner.shared_.push_back({std::exchange(inner.text_, {}), Share(tensor)});
      inner.bytes_ += size;
    }
  }
  Append(field_number, std::move(inner));
}

grpc::ByteBuffer MessagePieces::Build() && {
  std::vector<grpc::Slice> slices;
  slices.reserve(2 * shared_.size() + 1);
  for (Shared& shared : shared_) {
    slices.emplace_back(shared.text_before);
    slices.push_back(std::move(shared.bytes));
  }
  slices.emplace_back(text_);
  return {slices.data(), slices.size()};
}

void MessagePieces::AppendHeader(int field_number, int64_t length) {
  uint8_t header[20];
  uint8_t* end = pb::io::CodedOutputStream::WriteVarint32ToArray(
      WireFormatLite::MakeTag(field_number,
                              WireFormatLite::WIRETYPE_LENGTH_DELIMITED),
      header);
  end = pb::io::CodedOutputStream::WriteVarint64ToArray(
      static_cast<uint64_t>(length), end);
  Append({reinterpret_cast<const char*>(header),
          static_cast<size_t>(end - header)});
}

}  // namespace attention::client
