#include "core/cuda/cuda_device.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/cuda/cublas_library.h"
#include "core/cuda/cuda_status.h"
#include "core/cuda/cuda_stream.h"
#include "core/cuda/kernels/kernel_table.h"
#include "core/cuda/pinned_ranges.h"

namespace attention::cuda {
namespace {

// Bytes of the allocation that `memory` lies in, from there on. The runtime has
// no such question; the driver's library is loaded already.
absl::StatusOr<int64_t> BytesFrom(const std::byte* memory) {
  using Range = CUresult (*)(CUdeviceptr * base, size_t * size, CUdeviceptr);
  static const auto range = reinterpret_cast<Range>(
      dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD),
            "cuMemGetAddressRange_v2"));
  if (range == nullptr) {
    return absl::UnimplementedError(
        "the driver does not tell sizes (cuMemGetAddressRange)");
  }
  const auto address = reinterpret_cast<CUdeviceptr>(memory);
  CUdeviceptr base = 0;
  size_t size = 0;
  const CUresult error = range(&base, &size, address);
  if (error != CUDA_SUCCESS) {
    return absl::InternalError(
        absl::StrCat("cuMemGetAddressRange: error ", static_cast<int>(error)));
  }
  return static_cast<int64_t>(base + size - address);
}

// Portable registrations are the whole process's.
PinnedRanges& Pinned() {
  static auto* const pinned = new PinnedRanges;
  return *pinned;
}

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
    if (!Select().ok()) return;
    health_.Check("cudaFree", cudaFree(memory)).IgnoreError();
  }

  absl::StatusOr<std::byte*> OpenShared(absl::string_view handle,
                                        int64_t bytes) override {
    if (absl::Status status = Select(); !status.ok()) return status;
    cudaIpcMemHandle_t ipc;
    static_assert(sizeof(ipc) == kSharedHandleBytes);
    std::memcpy(&ipc, handle.data(), sizeof(ipc));
    void* memory = nullptr;
    absl::Status status = health_.Check(
        "cudaIpcOpenMemHandle",
        cudaIpcOpenMemHandle(&memory, ipc, cudaIpcMemLazyEnablePeerAccess));
    if (!status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("raw_handle: ", status.message(),
                       " (expected a cudaIpcMemHandle_t of memory on device ",
                       ordinal_, " that another process holds)"));
    }
    auto* const shared = static_cast<std::byte*>(memory);
    // What a caller says of the size is not to be believed: a kernel that reads
    // beyond the memory ends the device for everybody.
    const absl::StatusOr<int64_t> size = BytesFrom(shared);
    if (size.ok() && *size >= bytes) return shared;
    CloseShared(shared);
    if (!size.ok()) return size.status();
    return absl::InvalidArgumentError(absl::StrCat(
        "byte_size: ", bytes, " (the memory of raw_handle has ", *size, ")"));
  }

  void CloseShared(std::byte* memory) override {
    if (!Select().ok()) return;
    health_.Check("cudaIpcCloseMemHandle", cudaIpcCloseMemHandle(memory))
        .IgnoreError();
  }

  absl::Status PinHost(absl::Span<std::byte> memory) override {
    if (absl::Status status = Select(); !status.ok()) return status;
    absl::Status status = health_.Check(
        "cudaHostRegister", cudaHostRegister(memory.data(), memory.size(),
                                             cudaHostRegisterPortable));
    if (status.ok()) Pinned().Add(memory);
    return status;
  }

  absl::Status UnpinHost(absl::Span<std::byte> memory) override {
    Pinned().Remove(memory);
    if (absl::Status status = Select(); !status.ok()) return status;
    return health_.Check("cudaHostUnregister",
                         cudaHostUnregister(memory.data()));
  }

  absl::Status CopyToHost(const std::byte* from, std::byte* to,
                          int64_t bytes) override {
    if (absl::Status status = Select(); !status.ok()) return status;
    return health_.Check("cudaMemcpy",
                         cudaMemcpy(to, from, static_cast<size_t>(bytes),
                                    cudaMemcpyDeviceToHost));
  }

  absl::StatusOr<std::unique_ptr<Stream>> NewStream() override {
    return CudaStream::Create(ordinal_, health_, Pinned());
  }

  absl::Status LoadGemm() override { return CublasLibrary::Open().status(); }

  absl::Status Health() const override { return health_.status(); }

 private:
  // A lost device is asked for nothing: it may hang, and calls with it.
  absl::Status Select() {
    if (absl::Status lost = health_.status(); !lost.ok()) return lost;
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
  properties.ordinal = ordinal;
  properties.compute_capability = 10 * found.major + found.minor;
  properties.multiprocessors = found.multiProcessorCount;
  properties.shared_memory_per_block =
      static_cast<int64_t>(found.sharedMemPerBlockOptin);
  // Machine code of sm_90a runs on 9.0 alone.
  properties.wgmma = properties.compute_capability == 90 &&
                     DeviceKernels().attend_wgmma != nullptr;
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
