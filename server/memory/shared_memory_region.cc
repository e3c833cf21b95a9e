#include "server/memory/shared_memory_region.h"

#include "absl/strings/str_cat.h"
#include "server/memory/region_names.h"

namespace attention::server {

absl::StatusOr<absl::Span<std::byte>> SharedMemoryRegion::Bytes(
    uint64_t offset, uint64_t byte_size) const {
  const uint64_t size = description_.byte_size;
  if (offset > size || byte_size > size - offset) {
    return absl::InvalidArgumentError(
        absl::StrCat(RegionPlace(description_.name), ": shared_memory_offset ",
                     offset, " and shared_memory_byte_size ", byte_size,
                     " do not lie within its ", size, " bytes"));
  }
  if (absl::Status status = CheckIntact(); !status.ok()) return status;
  return absl::MakeSpan(begin_ + offset, byte_size);
}

MemoryRange SharedMemoryRegion::RangeOf(
    absl::Span<const std::byte> bytes) const {
  const bool on_host = description_.space == MemorySpace::kHost;
  const auto begin = on_host ? description_.offset +
                                   static_cast<uint64_t>(bytes.data() - begin_)
                             : reinterpret_cast<uintptr_t>(bytes.data());
  return {object_, begin, begin + bytes.size()};
}

}  // namespace attention::server
