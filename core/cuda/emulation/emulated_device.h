#ifndef ATTENTION_CORE_CUDA_EMULATION_EMULATED_DEVICE_H_
#define ATTENTION_CORE_CUDA_EMULATION_EMULATED_DEVICE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>

#include "core/cuda/device.h"

/// A device in host memory, for tests: it runs the kernels' own sources on the
/// calling thread (EmulatedKernels()), and is as strict as a real one where
/// host code can go wrong. Copies happen as late as they may, so that a staging
/// buffer that is used too early has the wrong content; memory that was never
/// written holds NaN.
namespace attention::cuda {

/// What is to go wrong. Shared by a device and its test.
struct Faults {
  /// Launches that still succeed; the next one fails and the device is lost.
  std::atomic<int64_t> launches_left = std::numeric_limits<int64_t>::max();
  /// Static text, where set: a kernel that never ends, and one that ends the
  /// process.
  std::atomic<const char*> hangs_in = nullptr;
  std::atomic<const char*> aborts_in = nullptr;
  /// Likewise, one that stands behind the work of other streams: its stream's
  /// marks are reached once others have reached so many. Of one launch.
  std::atomic<const char*> queues_in = nullptr;
  std::atomic<int64_t> queues_behind = 0;
  /// Marks that were reached.
  std::atomic<int64_t> marks = 0;
  /// Called, where set, before memory is freed or allocated: a real device
  /// waits there for what runs. To be set while nothing does so.
  std::function<void()> before_free = nullptr;
  std::function<void()> before_allocate = nullptr;
  /// Whether there is no cuBLAS.
  std::atomic<bool> without_gemm = false;
  /// Whether allocations lie edge to edge, each behind the last one, as a real
  /// device's may. To be set before the first one.
  bool edge_to_edge = false;
  /// Bytes that the device has.
  std::atomic<int64_t> memory = int64_t{1} << 40;
  /// Bytes that are taken of it now, and streams that were made of it.
  std::atomic<int64_t> allocated = 0;
  std::atomic<int64_t> streams = 0;
  /// Copies between host and device that were begun.
  std::atomic<int64_t> copies = 0;
  /// Bytes of those to the device, and of these such as had no staging buffer.
  std::atomic<int64_t> uploaded = 0;
  std::atomic<int64_t> uploaded_pinned = 0;
  /// Pieces of host memory that are pinned now.
  std::atomic<int64_t> pinned = 0;
  /// How often other processes' memory is mapped now.
  std::atomic<int64_t> shared = 0;
};

/// A small device of compute capability 9.0 with 227 KiB of shared memory per
/// block and 4 multiprocessors, without the use of attend_wgmma.
DeviceProperties EmulatedProperties();

/// `faults` may be null.
std::unique_ptr<Device> MakeEmulatedDevice(
    DeviceProperties properties = EmulatedProperties(),
    std::shared_ptr<Faults> faults = nullptr);

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_EMULATION_EMULATED_DEVICE_H_
