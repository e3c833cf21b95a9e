// The protocol's extensions for system and CUDA shared memory.
#include <memory>
#include <string>

#include "server/memory/cuda_memory_region.h"
#include "server/memory/region_names.h"
#include "server/memory/system_memory_region.h"
#include "server/services/caller_of_call.h"
#include "server/services/inference_management.h"

namespace attention::server {
namespace {

// Forgets the region of that name, or all of the space where there is none.
// Tools call it before they know what a server has: to unregister what was not
// registered is no error anywhere.
void Forget(SharedMemoryRegistry& regions, MemorySpace space,
            const std::string& name) {
  if (name.empty()) {
    regions.UnregisterAll(space);
  } else {
    regions.Unregister(space, name);
  }
}

}  // namespace

absl::Status InferenceManagement::CheckSharedMemory(
    const Caller* caller) const {
  absl::Status status = CheckRight(caller, Right::kSharedMemory);
  if (status.ok() && !options_.allow_shared_memory) {
    status = SharedMemoryIsOff();
  }
  return status;
}

absl::StatusOr<inference::SystemSharedMemoryStatusResponse>
InferenceManagement::SystemSharedMemoryStatus(
    const Caller* caller,
    const inference::SystemSharedMemoryStatusRequest& request) {
  absl::Status right = CheckRight(caller, Right::kSharedMemory);
  if (!right.ok()) return right;
  const auto regions = regions_.Status(MemorySpace::kHost, request.name());
  if (!regions.ok()) return regions.status();
  inference::SystemSharedMemoryStatusResponse response;
  for (const SharedMemoryDescription& region : *regions) {
    auto& status = (*response.mutable_regions())[region.name];
    status.set_name(region.name);
    status.set_key(region.key);
    status.set_offset(region.offset);
    status.set_byte_size(region.byte_size);
  }
  return response;
}

absl::StatusOr<inference::SystemSharedMemoryRegisterResponse>
InferenceManagement::SystemSharedMemoryRegister(
    const Caller* caller,
    const inference::SystemSharedMemoryRegisterRequest& request) {
  absl::Status status = CheckSharedMemory(caller);
  if (!status.ok()) return status;
  std::shared_ptr<SystemMemoryRegion> region;
  status = regions_.Register(request.name(), [&request, &region] {
    auto mapped = SystemMemoryRegion::Map({.name = request.name(),
                                           .key = request.key(),
                                           .offset = request.offset(),
                                           .byte_size = request.byte_size()});
    if (mapped.ok()) region = *mapped;
    return mapped;
  });
  if (!status.ok()) return status;
  // Not in Register(), for which everybody waits who looks for a region.
  region->Pin(engine_);
  return inference::SystemSharedMemoryRegisterResponse();
}

absl::StatusOr<inference::SystemSharedMemoryUnregisterResponse>
InferenceManagement::SystemSharedMemoryUnregister(
    const Caller* caller,
    const inference::SystemSharedMemoryUnregisterRequest& request) {
  absl::Status right = CheckRight(caller, Right::kSharedMemory);
  if (!right.ok()) return right;
  Forget(regions_, MemorySpace::kHost, request.name());
  return inference::SystemSharedMemoryUnregisterResponse();
}

absl::StatusOr<inference::CudaSharedMemoryStatusResponse>
InferenceManagement::CudaSharedMemoryStatus(
    const Caller* caller,
    const inference::CudaSharedMemoryStatusRequest& request) {
  absl::Status status = CheckRight(caller, Right::kSharedMemory);
  if (status.ok()) status = engine_.CheckReachesDevices();
  if (!status.ok()) return status;
  const auto regions =
      regions_.Status(MemorySpace::kCudaDevice, request.name());
  if (!regions.ok()) return regions.status();
  inference::CudaSharedMemoryStatusResponse response;
  for (const SharedMemoryDescription& region : *regions) {
    auto& entry = (*response.mutable_regions())[region.name];
    entry.set_name(region.name);
    entry.set_device_id(static_cast<uint64_t>(region.device));
    entry.set_byte_size(region.byte_size);
  }
  return response;
}

absl::StatusOr<inference::CudaSharedMemoryRegisterResponse>
InferenceManagement::CudaSharedMemoryRegister(
    const Caller* caller,
    const inference::CudaSharedMemoryRegisterRequest& request) {
  absl::Status status = CheckSharedMemory(caller);
  if (!status.ok()) return status;
  status = regions_.Register(request.name(), [this, &request] {
    return CudaMemoryRegion::Map(request.name(), request.raw_handle(),
                                 request.device_id(), request.byte_size(),
                                 engine_);
  });
  if (!status.ok()) return status;
  return inference::CudaSharedMemoryRegisterResponse();
}

absl::StatusOr<inference::CudaSharedMemoryUnregisterResponse>
InferenceManagement::CudaSharedMemoryUnregister(
    const Caller* caller,
    const inference::CudaSharedMemoryUnregisterRequest& request) {
  absl::Status right = CheckRight(caller, Right::kSharedMemory);
  if (!right.ok()) return right;
  Forget(regions_, MemorySpace::kCudaDevice, request.name());
  return inference::CudaSharedMemoryUnregisterResponse();
}

}  // namespace attention::server
