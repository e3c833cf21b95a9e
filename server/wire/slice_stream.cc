#include "server/wire/slice_stream.h"

#include <algorithm>
#include <limits>

namespace attention::server {

bool SliceInputStream::Next(const void** data, int* size) {
  const size_t count = message_.slices().size();
  while (next_ < count && position_ == current().size()) {
    message_.Release(next_);
    ++next_;
    position_ = 0;
  }
  if (next_ == count) return false;
  const grpc::Slice& slice = current();
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
