#ifndef ATTENTION_SERVER_WIRE_SKELETON_H_
#define ATTENTION_SERVER_WIRE_SKELETON_H_

#include <google/protobuf/io/coded_stream.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "absl/strings/string_view.h"

namespace attention::server {

/// The skeleton of a message, in which marks stand for tensors' elements (see
/// SplitRules). It grows at its end. Most of it is single bytes: to append each
/// to a std::string costs several times as much as to write it.
class Skeleton {
 public:
  Skeleton() : bytes_(kUsualBytes, '\0') {}

  size_t size() const { return size_; }
  absl::string_view bytes() const { return {bytes_.data(), size_}; }

  void AppendVarint(uint64_t value) {
    uint8_t* const to = Room(kMostVarintBytes);
    if (value < 0x80) {  // nearly all of them
      *to = static_cast<uint8_t>(value);
      ++size_;
      return;
    }
    size_ += static_cast<size_t>(
        google::protobuf::io::CodedOutputStream::WriteVarint64ToArray(value,
                                                                      to) -
        to);
  }
  void Append(const void* bytes, size_t count) {
    std::memcpy(Room(count), bytes, count);
    Grow(count);
  }

  /// Where `count` bytes may be written, which are part of it once it grows.
  uint8_t* Room(size_t count) {
    if (bytes_.size() - size_ < count) {
      bytes_.resize(std::max(2 * bytes_.size(), size_ + count));
    }
    return reinterpret_cast<uint8_t*>(bytes_.data()) + size_;
  }
  void Grow(size_t count) { size_ += count; }

  /// A message within: its length is known at its end alone, and stands before
  /// it. End() is told what Begin() said.
  size_t Begin() {
    Room(1);
    return ++size_;
  }
  void End(size_t begin) {
    const size_t length = size_ - begin;
    uint8_t bytes[kMostVarintBytes];
    const auto count = static_cast<size_t>(
        google::protobuf::io::CodedOutputStream::WriteVarint64ToArray(length,
                                                                      bytes) -
        bytes);
    if (count > 1) {
      Room(count - 1);
      std::memmove(&bytes_[begin + count - 1], &bytes_[begin], length);
      Grow(count - 1);
    }
    std::memcpy(&bytes_[begin - 1], bytes, count);
  }

 private:
  static constexpr size_t kUsualBytes = 512;  // what most take
  static constexpr size_t kMostVarintBytes = 10;

  std::string bytes_;  // the first `size_` are the skeleton, the rest is room
  size_t size_ = 0;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_WIRE_SKELETON_H_
