#include "core/cuda/cuda_device.h"

#include <cuda_runtime_api.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/cuda/cuda_status.h"
#include "core/cuda/cuda_stream.h"
#include "core/cuda/kernels/kernel_table.h"

namespace attention::cuda {
namespace {

class CudaDevice final : public Device {
 public:
  CudaDevice(int ordinal, DeviceProperties properties)
      : ordinal_(ordinal), properties_(std::move(properties)) {}

  const DeviceProperties& properties() const override { return properties_; }
  const KernelTable& kernels() const override { return DeviceKernels(); }

  absl::StatusOr<int64_t> FreeMemory() override {
    if (absl::Status status = Select(); !status.ok()) return status;
    size_t free = 0;
    size_t total = 0;
    absl::Status status =
        health_.Check("cudaMemGetInfo", cudaMemGetInfo(&free, &total));
    if (!status.ok()) return status;
    return static_cast<int64_t>(free);
  }

  absl::StatusOr<std::byte*> Allocate(int64_t bytes) override {
    if (absl::Status status = Select(); !status.ok()) return status;
    void* memory = nullptr;
    absl::Status status = health_.Check(
        "cudaMalloc", cudaMalloc(&memory, static_cast<size_t>(bytes)));
    if (!status.ok()) return status;
    return static_cast<std::byte*>(memory);
  }

  void Free(std::byte* memory) override {
    if (!Select().ok()) return;  // of a lost device, whose memory is gone
    health_.Check("cudaFree", cudaFree(memory)).IgnoreError();
  }

  absl::StatusOr<std::unique_ptr<Stream>> NewStream() override {
    return CudaStream::Create(ordinal_, health_);
  }

  absl::Status Health() const override { return health_.status(); }

 private:
  absl::Status Select() {
    return health_.Check("cudaSetDevice", cudaSetDevice(ordinal_));
  }

  const int ordinal_;
  const DeviceProperties properties_;
  DeviceHealth health_;
};

absl::StatusOr<DeviceProperties> PropertiesOf(int ordinal) {
  cudaDeviceProp found;
  absl::Status status = StatusOf("cudaGetDeviceProperties",
                                 cudaGetDeviceProperties(&found, ordinal));
  if (!status.ok()) return status;
  DeviceProperties properties;
  properties.name = found.name;
  properties.compute_capability = 10 * found.major + found.minor;
  properties.multiprocessors = found.multiProcessorCount;
  properties.shared_memory_per_block =
      static_cast<int64_t>(found.sharedMemPerBlockOptin);
  properties.memory = static_cast<int64_t>(found.totalGlobalMem);
  return properties;
}

}  // namespace

absl::StatusOr<Devices> OpenCudaDevices() {
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count);
      error != cudaSuccess) {
    return absl::UnavailableError(
        absl::StrCat("no CUDA device: ", cudaGetErrorString(error)));
  }
  Devices devices;
  std::string left_out;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    absl::StatusOr<DeviceProperties> properties = PropertiesOf(ordinal);
    if (!properties.ok()) {
      absl::StrAppend(&left_out, "; ", properties.status().message());
    } else if (properties->compute_capability < kLeastComputeCapability) {
      absl::StrAppend(&left_out, "; ", properties->name,
                      " is older than compute capability 8.0");
    } else {
      devices.push_back(
          std::make_unique<CudaDevice>(ordinal, *std::move(properties)));
    }
  }
  // A launch on this thread would else report what is reported here.
  static_cast<void>(cudaGetLastError());
  if (devices.empty()) {
    return absl::UnavailableError(absl::StrCat("no CUDA device", left_out));
  }
  return devices;
}

}  // namespace attention::cuda
