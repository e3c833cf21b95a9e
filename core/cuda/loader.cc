#include "core/cuda/loader.h"

#include <dlfcn.h>

#include <filesystem>
#include <string>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace attention::cuda {
namespace {

// The driver's library, which comes with the driver and not with the toolkit.
constexpr char kDriver[] = "libcuda.so.1";

bool Exists(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

// Why the build has none, in cmake/Cuda.cmake's words; empty where it has.
constexpr absl::string_view kWhyNotBuilt = ATTENTION_WHY_NO_CUDA;

// Of a build that has one, whoever builds the server alone has not built it.
std::string WhyNone() {
  return kWhyNotBuilt.empty()
             ? "this build has nvcc, but the plugin was not built (target "
               "attention_cuda) or not installed"
             : absl::StrCat("this build has no CUDA: ", kWhyNotBuilt);
}

std::string LoaderError() {
  const char* const message = dlerror();
  return message == nullptr ? "unknown error" : message;
}

}  // namespace

absl::StatusOr<Devices> OpenPlugin(const std::string& path) {
  if (!Exists(path)) {
    return absl::NotFoundError(absl::StrCat(path, " does not exist"));
  }
  // Never closed: devices outlive every scope, and CUDA does not like to go.
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("the CUDA plugin does not load: ", LoaderError()));
  }
  const auto entry =
      reinterpret_cast<PluginEntry>(dlsym(library, kPluginEntry));
  if (entry == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is no CUDA plugin: ", LoaderError()));
  }
  const Plugin* const plugin = entry();
  if (absl::string_view(plugin->build) != ATTENTION_CUDA_BUILD) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is of build ", plugin->build,
                     ", the program of build ", ATTENTION_CUDA_BUILD));
  }
  return plugin->open_devices();
}

absl::StatusOr<std::string> FindPlugin() {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string folder = program.parent_path().string();
  for (const char* place : {"/", "/../lib/attention-server/"}) {
    std::string path = absl::StrCat(folder, place, kPluginFile);
    if (!Exists(path)) continue;
    if (dlopen(kDriver, RTLD_NOW | RTLD_LOCAL) == nullptr) {
      return absl::UnavailableError(
          absl::StrCat("no NVIDIA driver on this machine (", kDriver, ")"));
    }
    return path;
  }
  return absl::NotFoundError(absl::StrCat(
      kPluginFile,
      " is neither beside the program nor in ../lib/attention-server: ",
      WhyNone()));
}

absl::StatusOr<Devices> OpenDevices() {
  const absl::StatusOr<std::string> plugin = FindPlugin();
  if (!plugin.ok()) return plugin.status();
  return OpenPlugin(*plugin);
}

}  // namespace attention::cuda
