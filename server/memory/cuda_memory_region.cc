#include "server/memory/cuda_memory_region.h"

#include <limits>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "server/memory/region_names.h"

namespace attention::server {

absl::StatusOr<std::shared_ptr<CudaMemoryRegion>> CudaMemoryRegion::Map(
    const std::string& name, absl::string_view handle, int64_t device,
    uint64_t byte_size, const Engine& engine) {
  if (byte_size == 0 ||
      byte_size > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return absl::InvalidArgumentError(
        absl::StrCat(RegionPlace(name), ": byte_size is ", byte_size,
                     " (expected 1 to 2^63 - 1)"));
  }
  absl::StatusOr<std::unique_ptr<DeviceMemory>> memory =
      engine.MapDeviceMemory(handle, device, static_cast<int64_t>(byte_size));
  if (!memory.ok()) {
    return absl::Status(
        memory.status().code(),
        absl::StrCat(RegionPlace(name), ": ", memory.status().message()));
  }
  return absl::WrapUnique(new CudaMemoryRegion(name, *std::move(memory)));
}

CudaMemoryRegion::CudaMemoryRegion(const std::string& name,
                                   std::unique_ptr<DeviceMemory> memory)
    : SharedMemoryRegion({.name = name,
                          .byte_size = memory->bytes().size(),
                          .space = MemorySpace::kCudaDevice,
                          .device = memory->device()}),
      memory_(std::move(memory)) {
  set_begin(memory_->bytes().data());
}

absl::Status CudaMemoryRegion::CopyToHost(const std::byte* from,
                                          absl::Span<std::byte> to) const {
  return memory_->CopyToHost(from, to);
}

}  // namespace attention::server
