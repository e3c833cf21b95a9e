#ifndef ATTENTION_BENCHMARKS_DEVICE_DEVICE_LIMITS_H_
#define ATTENTION_BENCHMARKS_DEVICE_DEVICE_LIMITS_H_

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "core/cuda/device.h"

namespace attention::bench {

/// What a device comes to at its best.
struct DeviceLimit {
  std::string name;  // "BF16 product, 8192 x 8192 x 8192"
  std::string unit;  // "TFLOP/s" or "GB/s"
  absl::StatusOr<double> value;
};

/// Measures matrix products by cuBLAS, copies within the device's memory
/// (bytes read and bytes written are counted) and copies through pinned host
/// memory. `size` is a matrix's rows and columns.
void MeasureLimits(cuda::Device& device, cuda::Stream& stream, int64_t size,
                   absl::FunctionRef<void(const DeviceLimit&)> tell);

}  // namespace attention::bench

#endif  // ATTENTION_BENCHMARKS_DEVICE_DEVICE_LIMITS_H_
