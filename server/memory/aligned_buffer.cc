#include "server/memory/aligned_buffer.h"

#include "absl/strings/str_cat.h"
#include "server/memory/buffer_pool.h"

namespace attention::server {

absl::StatusOr<AlignedBuffer> AlignedBuffer::Create(int64_t size) {
  AlignedBuffer buffer;
  buffer.bytes_.reset(BufferPool::OfProcess().Take(size));
  if (buffer.bytes_ == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the server has no memory for ", size, " bytes"));
  }
  buffer.size_ = size;
  return buffer;
}

void AlignedBuffer::Free(void* bytes) {
  BufferPool::OfProcess().Return(static_cast<std::byte*>(bytes));
}

}  // namespace attention::server
