#ifndef ATTENTION_CORE_DEVICE_MEMORY_H_
#define ATTENTION_CORE_DEVICE_MEMORY_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace attention {

/// Memory on a CUDA device that another process has allocated and shares,
/// mapped into this one until this object goes. Views of it have
/// MemorySpace::kCudaDevice; the host must not touch its addresses. May be used
/// from several threads at once; the other process may write to it at any
/// moment.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;

  /// The device, as CUDA counts those of this process.
  virtual int device() const = 0;
  /// All of it, as addresses of the device.
  virtual absl::Span<std::byte> bytes() const = 0;

  /// Copies from the device, `to.size()` bytes that lie within bytes(). Waits
  /// for the copy. INTERNAL with the device's error.
  virtual absl::Status CopyToHost(const std::byte* from,
                                  absl::Span<std::byte> to) const = 0;
};

/// Host memory that CUDA devices read and write themselves until Release(), so
/// that its tensors need not be copied to staging buffers.
class PinnedMemory {
 public:
  virtual ~PinnedMemory() = default;

  /// Once, before the memory is unmapped. False where the driver cannot be told
  /// any more, because its device is lost: the memory must then stay mapped, or
  /// what is mapped at its addresses next would be taken for it.
  [[nodiscard]] virtual bool Release() = 0;
};

}  // namespace attention

#endif  // ATTENTION_CORE_DEVICE_MEMORY_H_
