// The protocol's extensions for system and CUDA shared memory.
#include "server/services/answer.h"
#include "server/services/inference_service.h"

namespace attention::server {
namespace {

absl::Status NoGpu() {
  return absl::UnimplementedError(
      "CUDA shared memory: this build of the server has no GPU");
}

}  // namespace

InferenceService::Reactor* InferenceService::SystemSharedMemoryStatus(
    Context* context, const inference::SystemSharedMemoryStatusRequest* request,
    inference::SystemSharedMemoryStatusResponse* response) {
  const auto regions = regions_.Status(request->name());
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
  if (!options_.allow_shared_memory) {
    return Answer(context,
                  absl::UnavailableError("shared memory is switched off (the "
                                         "server's --allow-shared-memory)"));
  }
  return Answer(context,
                regions_.Register({.name = request->name(),
                                   .key = request->key(),
                                   .offset = request->offset(),
                                   .byte_size = request->byte_size()}));
}

InferenceService::Reactor* InferenceService::SystemSharedMemoryUnregister(
    Context* context,
    const inference::SystemSharedMemoryUnregisterRequest* request,
    inference::SystemSharedMemoryUnregisterResponse*) {
  if (request->name().empty()) {
    regions_.UnregisterAll();
  } else {
    regions_.Unregister(request->name());
  }
  return Answer(context, absl::OkStatus());
}

InferenceService::Reactor* InferenceService::CudaSharedMemoryStatus(
    Context* context, const inference::CudaSharedMemoryStatusRequest*,
    inference::CudaSharedMemoryStatusResponse*) {
  return Answer(context, NoGpu());
}

InferenceService::Reactor* InferenceService::CudaSharedMemoryRegister(
    Context* context, const inference::CudaSharedMemoryRegisterRequest*,
    inference::CudaSharedMemoryRegisterResponse*) {
  return Answer(context, NoGpu());
}

InferenceService::Reactor* InferenceService::CudaSharedMemoryUnregister(
    Context* context, const inference::CudaSharedMemoryUnregisterRequest*,
    inference::CudaSharedMemoryUnregisterResponse*) {
  // Tools call it before they know what a server has: nothing was registered,
  // so nothing is now.
  return Answer(context, absl::OkStatus());
}

}  // namespace attention::server
