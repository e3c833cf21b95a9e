#ifndef ATTENTION_SERVER_MEMORY_CUDA_MEMORY_REGION_H_
#define ATTENTION_SERVER_MEMORY_CUDA_MEMORY_REGION_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/device_memory.h"
#include "core/engine.h"
#include "server/memory/shared_memory_region.h"

namespace attention::server {

/// Memory on a CUDA device that another process shares (cudaIpcMemHandle_t).
/// That process must not free it while it is registered: CUDA does not say what
/// is then read.
class CudaMemoryRegion final : public SharedMemoryRegion {
 public:
  /// Maps `byte_size` bytes of what `handle` stands for. INVALID_ARGUMENT,
  /// naming the region and the field, and UNIMPLEMENTED, as
  /// Engine::MapDeviceMemory.
  static absl::StatusOr<std::shared_ptr<CudaMemoryRegion>> Map(
      const std::string& name, absl::string_view handle, int64_t device,
      uint64_t byte_size, const Engine& engine);

  absl::Status CheckIntact() const override { return absl::OkStatus(); }
  absl::Status CopyToHost(const std::byte* from,
                          absl::Span<std::byte> to) const override;

 private:
  CudaMemoryRegion(const std::string& name,
                   std::unique_ptr<DeviceMemory> memory);

  const std::unique_ptr<DeviceMemory> memory_;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_MEMORY_CUDA_MEMORY_REGION_H_
