#include "core/cuda/plugin.h"

#include "core/cuda/cuda_device.h"

namespace {

constexpr attention::cuda::Plugin kPlugin = {ATTENTION_CUDA_BUILD,
                                             &attention::cuda::OpenCudaDevices};

}  // namespace

// Its name is kPluginEntry.
extern "C" __attribute__((visibility("default"))) const attention::cuda::Plugin*
AttentionCudaPlugin();

const attention::cuda::Plugin* AttentionCudaPlugin() { return &kPlugin; }
