#include "server/shards/slice_reader.h"

#include <algorithm>

namespace attention::server {
namespace {

constexpr uint64_t kWireTypes = 8;
constexpr uint64_t kLengthDelimited = 2;
constexpr uint64_t kMostNumber = (1 << 29) - 1;
constexpr int kVarintBits = 7;
constexpr uint8_t kMore = 0x80;

}  // namespace

SliceReader::SliceReader(absl::Span<const grpc::Slice> slices)
    : slices_(slices) {
  for (const grpc::Slice& slice : slices_) left_ += slice.size();
}

bool SliceReader::NextField(uint32_t& number, uint64_t& bytes) {
  uint64_t tag = 0;
  if (!ReadVarint(tag) || tag % kWireTypes != kLengthDelimited ||
      tag / kWireTypes == 0 || tag / kWireTypes > kMostNumber ||
      !ReadVarint(bytes) || bytes > left_) {
    return false;
  }
  number = static_cast<uint32_t>(tag / kWireTypes);
  return true;
}

void SliceReader::Take(uint64_t bytes, std::vector<grpc::Slice>& out) {
  while (bytes > 0) {
    const size_t here = Here(bytes);
    if (here > 0) out.push_back(slices_.front().sub(at_, at_ + here));
    Advance(here);
    bytes -= here;
  }
}

void SliceReader::Skip(uint64_t bytes) {
  while (bytes > 0) {
    const size_t here = Here(bytes);
    Advance(here);
    bytes -= here;
  }
}

bool SliceReader::ReadVarint(uint64_t& value) {
  value = 0;
  for (int shift = 0; shift < 64; shift += kVarintBits) {
    while (left_ > 0 && Here(1) == 0) Advance(0);
    if (left_ == 0) return false;
    const uint8_t byte = slices_.front().begin()[at_];
    Advance(1);
    value |= static_cast<uint64_t>(byte & (kMore - 1)) << shift;
    if (byte < kMore) return true;
  }
  return false;
}

size_t SliceReader::Here(uint64_t most) const {
  return static_cast<size_t>(
      std::min<uint64_t>(most, slices_.front().size() - at_));
}

void SliceReader::Advance(size_t bytes) {
  at_ += bytes;
  left_ -= bytes;
  if (at_ < slices_.front().size()) return;
  slices_.remove_prefix(1);
  at_ = 0;
}

}  // namespace attention::server
