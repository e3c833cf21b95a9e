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
///   NOT_FOUND            the plugin is not beside the program (a build without
///                        nvcc, or one that was not installed)
///   UNAVAILABLE          no NVIDIA driver or no device on this machine
///   FAILED_PRECONDITION  the plugin is there and cannot be used: a library it
///                        needs is missing, or it is of another build
///
/// `path` is the plugin's file; empty means kPluginFile in the folder of the
/// running program, or in ../lib/attention-server from there.
absl::StatusOr<Devices> OpenDevices(const std::string& path = "");

/// The same without the search for a driver beforehand, which is there so that
/// a machine without one need not load cuBLAS to find out. For tests.
absl::StatusOr<Devices> OpenPlugin(const std::string& path);

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_LOADER_H_
