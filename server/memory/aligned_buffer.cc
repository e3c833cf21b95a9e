#include "server/memory/aligned_buffer.h"

#include <new>

#include "absl/strings/str_cat.h"

namespace attention::server {
namespace {

constexpr std::align_val_t kAlignment{64};

}  // namespace

absl::StatusOr<AlignedBuffer> AlignedBuffer::Create(int64_t size) {
  AlignedBuffer buffer;
  buffer.bytes_.reset(static_cast<std::byte*>(
      ::operator new(static_cast<size_t>(size), kAlignment, std::nothrow)));
  if (buffer.bytes_ == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the server has no memory for ", size, " bytes"));
  }
  buffer.size_ = size;
  return buffer;
}

void AlignedBuffer::Free(void* bytes) { ::operator delete(bytes, kAlignment); }

}  // namespace attention::server
