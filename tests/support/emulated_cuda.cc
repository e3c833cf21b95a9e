// Linked into a test program, this adds the CUDA backend on an emulated device
// to the backends that are tested (AddBackend(), results.h): "cuda_emulated",
// as it is served, and "cuda_emulated_small", whose thresholds are so low that
// small problems take the ways of large ones.

#include <memory>
#include <utility>

#include "core/cuda/cuda_backend.h"
#include "core/cuda/emulation/emulated_device.h"
#include "tests/support/results.h"

namespace attention::test {
namespace {

std::unique_ptr<Backend> Make(const CudaBackendOptions& options,
                              bool wgmma = false) {
  cuda::DeviceProperties properties = cuda::EmulatedProperties();
  properties.wgmma = wgmma;
  cuda::Devices devices;
  devices.push_back(cuda::MakeEmulatedDevice(properties));
  return MakeCudaBackend(std::move(devices), options);
}

std::unique_ptr<Backend> MakeEmulated() {
  return Make({.name = "cuda_emulated"});
}

// With weights through matrix products in a few rows at a time, in slices of
// one batch entry or head and few rows each, and launches for Hopper.
std::unique_ptr<Backend> MakeEmulatedSmall() {
  return Make({.name = "cuda_emulated_small",
               .plan = {.least_gemm_elements = 1,
                        .score_bytes = 2048,
                        .slice_bytes = 1,
                        .slice_work = 1}},
              /*wgmma=*/true);
}

// In the order of initialisation of this file, before main.
[[maybe_unused]] const bool kAdded =
    AddBackend("cuda_emulated", MakeEmulated) &&
    AddBackend("cuda_emulated_small", MakeEmulatedSmall);

}  // namespace
}  // namespace attention::test
