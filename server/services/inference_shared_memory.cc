// The protocol's extensions for system and CUDA shared memory.
#include <memory>
#include <string>

#include "server/memory/cuda_memory_region.h"
#include "server/memory/region_names.h"
#include "server/memory/system_memory_region.h"
#include "server/services/answer.h"
#include "server/services/caller_of_call.h"
#include "server/services/inference_service.h"

namespace attention::server {
namespace {

// Forgets the region of that name, or all of the space where there is none.
void Forget(SharedMemoryRegistry& regions, MemorySpace space,
            const std::string& name) {
  if (name.empty()) {
    regions.UnregisterAll(space);
  } else {
    regions.Unregister(space, name);
  }
}

}  // namespace

absl::Status InferenceService::CheckSharedMemory(const Context& context) const {
  absl::Status status =
      CheckCall(services_.callers, context, Right::kSharedMemory);
  if (status.ok() && !options_.allow_shared_memory) {
    status = SharedMemoryIsOff();
  }
  return status;
}

InferenceService::Reactor* InferenceService::SystemSharedMemoryStatus(
    Context* context, const inference::SystemSharedMemoryStatusRequest* request,
    inference::SystemSharedMemoryStatusResponse* response) {
  if (absl::Status status =
          CheckCall(services_.callers, *context, Right::kSharedMemory);
      !status.ok()) {
    return Answer(context, status);
  }
  const auto regions = regions_.Status(MemorySpace::kHost, request->name());
  if (!regions.ok()) return Answer(context, regions.status());
  for (const SharedMemoryDescription& region : *regions) {
    auto& status = (*response->mutable_regions())[region.name];
    status.set_name(region.name);
    status.set_key(region.key);
    status.set_offset(region.offset);
    status.set_byte_size(region.byte_size);
  }
  return Answer(context, absl::OkStatus());
}

InferenceService::Reactor* InferenceService::SystemSharedMemoryRegister(
    Context* context,
    const inference::SystemSharedMemoryRegisterRequest* request,
    inference::SystemSharedMemoryRegisterResponse*) {
  if (absl::Status status = CheckSharedMemory(*context); !status.ok()) {
    return Answer(context, status);
  }
  std::shared_ptr<SystemMemoryRegion> region;
  const absl::Status status =
      regions_.Register(request->name(), [request, &region] {
        auto mapped =
            SystemMemoryRegion::Map({.name = request->name(),
                                     .key = request->key(),
                                     .offset = request->offset(),
                                     .byte_size = request->byte_size()});
        if (mapped.ok()) region = *mapped;
        return mapped;
      });
  // Not in Register(), for which everybody waits who looks for a region.
  if (status.ok()) region->Pin(engine_);
  return Answer(context, status);
}

InferenceService::Reactor* InferenceService::SystemSharedMemoryUnregister(
    Context* context,
    const inference::SystemSharedMemoryUnregisterRequest* request,
    inference::SystemSharedMemoryUnregisterResponse*) {
  if (absl::Status status =
          CheckCall(services_.callers, *context, Right::kSharedMemory);
      !status.ok()) {
    return Answer(context, status);
  }
  Forget(regions_, MemorySpace::kHost, request->name());
  return Answer(context, absl::OkStatus());
}

InferenceService::Reactor* InferenceService::CudaSharedMemoryStatus(
    Context* context, const inference::CudaSharedMemoryStatusRequest* request,
    inference::CudaSharedMemoryStatusResponse* response) {
  if (absl::Status status =
          CheckCall(services_.callers, *context, Right::kSharedMemory);
      !status.ok()) {
    return Answer(context, status);
  }
  if (absl::Status status = engine_.CheckReachesDevices(); !status.ok()) {
    return Answer(context, status);
  }
  const auto regions =
      regions_.Status(MemorySpace::kCudaDevice, request->name());
  if (!regions.ok()) return Answer(context, regions.status());
  for (const SharedMemoryDescription& region : *regions) {
    auto& status = (*response->mutable_regions())[region.name];
    status.set_name(region.name);
    status.set_device_id(static_cast<uint64_t>(region.device));
    status.set_byte_size(region.byte_size);
  }
  return Answer(context, absl::OkStatus());
}

InferenceService::Reactor* InferenceService::CudaSharedMemoryRegister(
    Context* context, const inference::CudaSharedMemoryRegisterRequest* request,
    inference::CudaSharedMemoryRegisterResponse*) {
  if (absl::Status status = CheckSharedMemory(*context); !status.ok()) {
    return Answer(context, status);
  }
  return Answer(context, regions_.Register(request->name(), [this, request] {
    return CudaMemoryRegion::Map(request->name(), request->raw_handle(),
                                 request->device_id(), request->byte_size(),
                                 engine_);
  }));
}

InferenceService::Reactor* InferenceService::CudaSharedMemoryUnregister(
    Context* context,
    const inference::CudaSharedMemoryUnregisterRequest* request,
    inference::CudaSharedMemoryUnregisterResponse*) {
  if (absl::Status status =
          CheckCall(services_.callers, *context, Right::kSharedMemory);
      !status.ok()) {
    return Answer(context, status);
  }
  // Tools call it before they know what a server has: to unregister what was
  // not registered is no error anywhere.
  Forget(regions_, MemorySpace::kCudaDevice, request->name());
  return Answer(context, absl::OkStatus());
}

}  // namespace attention::server
