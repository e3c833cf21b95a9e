#include "server/wire/slice_stream.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace attention::server {

SliceInputStream::SliceInputStream(std::vector<grpc::Slice> slices)
    : slices_(std::move(slices)) {
  for (const grpc::Slice& slice : slices_) {
    total_bytes_ += static_cast<int64_t>(slice.size());
  }
}

bool SliceInputStream::Next(const void** data, int* size) {
  while (next_ < slices_.size() && position_ == slices_[next_].size()) {
    slices_[next_] = grpc::Slice();
    ++next_;
    position_ = 0;
  }
  if (next_ == slices_.size()) return false;
  const grpc::Slice& slice = slices_[next_];
  const size_t rest = std::min<size_t>(slice.size() - position_,
                                       std::numeric_limits<int>::max());
  *data = slice.begin() + position_;
  *size = static_cast<int>(rest);
  position_ += rest;
  byte_count_ += static_cast<int64_t>(rest);
  return true;
}

void SliceInputStream::BackUp(int count) {
  position_ -= static_cast<size_t>(count);
  byte_count_ -= count;
}

bool SliceInputStream::Skip(int count) {
  const void* data = nullptr;
  int size = 0;
  while (count > 0) {
    if (!Next(&data, &size)) return false;
    if (size > count) {
      BackUp(size - count);
      size = count;
    }
    count -= size;
  }
  return true;
}

}  // namespace attention::server
