#ifndef ATTENTION_CORE_CUDA_PLUGIN_H_
#define ATTENTION_CORE_CUDA_PLUGIN_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "core/cuda/device.h"

namespace attention::cuda {

using Devices = std::vector<std::unique_ptr<Device>>;

/// What libattention_cuda.so gives to the program that loads it. The library is
/// never unloaded.
struct Plugin {
  /// ATTENTION_CUDA_BUILD when the plugin was compiled: version, compiler and a
  /// hash of the interface, for classes cross this border. To be compared with
  /// the program's own before anything else is called.
  const char* build;
  /// Every device that this build has kernels for; nothing is allocated on them
  /// yet. UNAVAILABLE, with the driver's reason, where there is none.
  absl::StatusOr<Devices> (*open_devices)();
};

/// The one symbol of the library: a function of this type and name.
using PluginEntry = const Plugin* (*)();
inline constexpr char kPluginEntry[] = "AttentionCudaPlugin";
inline constexpr char kPluginFile[] = "libattention_cuda.so";

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_PLUGIN_H_
