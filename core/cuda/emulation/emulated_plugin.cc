// The emulated device as a plugin: put in the place of the real one, it lets
// every program that loads libattention_cuda.so run on a machine without a GPU,
// unchanged. For tests.

#include <cstdlib>
#include <memory>
#include <utility>

#include "core/cuda/emulation/emulated_device.h"
#include "core/cuda/plugin.h"

namespace {

absl::StatusOr<attention::cuda::Devices> OpenEmulatedDevices() {
  attention::cuda::Devices devices;
  attention::cuda::DeviceProperties properties =
      attention::cuda::EmulatedProperties();
  properties.wgmma = true;
  // What is to go wrong, for tests of whoever loads a plugin.
  auto faults = std::make_shared<attention::cuda::Faults>();
  faults->hangs_in = std::getenv("ATTENTION_EMULATED_HANGS_IN");
  faults->aborts_in = std::getenv("ATTENTION_EMULATED_ABORTS_IN");
  faults->without_gemm =
      std::getenv("ATTENTION_EMULATED_WITHOUT_GEMM") != nullptr;
  devices.push_back(
      attention::cuda::MakeEmulatedDevice(properties, std::move(faults)));
  return devices;
}

constexpr attention::cuda::Plugin kPlugin = {ATTENTION_CUDA_BUILD,
                                             &OpenEmulatedDevices};

}  // namespace

// Its name is kPluginEntry.
extern "C" __attribute__((visibility("default"))) const attention::cuda::Plugin*
AttentionCudaPlugin();

const attention::cuda::Plugin* AttentionCudaPlugin() { return &kPlugin; }
