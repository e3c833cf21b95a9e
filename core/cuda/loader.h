#ifndef ATTENTION_CORE_CUDA_LOADER_H_
#define ATTENTION_CORE_CUDA_LOADER_H_

#include <string>

#include "absl/status/statusor.h"
#include "core/cuda/plugin.h"

/// CUDA's libraries are needed by a plugin alone, opened at run time: the same
/// program starts on machines that have none of them, and a build without nvcc
/// differs by one file.
namespace attention::cuda {

/// Opens the plugin and the devices of this machine. The status says in words
/// why there are none:
///   NOT_FOUND            the plugin is not beside the program: the build has
///                        none, or it was not built or installed
///   UNAVAILABLE          no NVIDIA driver or no device on this machine
///   FAILED_PRECONDITION  the plugin is there and cannot be used: a library it
///                        needs is missing, or it is of another build
///
/// The plugin is kPluginFile in the folder of the running program, or in
/// ../lib/attention-server from there.
absl::StatusOr<Devices> OpenDevices();

/// The parts of it. First where the plugin is, on a machine that has a driver:
/// the first two of these statuses.
absl::StatusOr<std::string> FindPlugin();
/// Then the devices of the plugin in the file `path`.
absl::StatusOr<Devices> OpenPlugin(const std::string& path);

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_LOADER_H_
