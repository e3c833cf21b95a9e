#ifndef ATTENTION_CORE_CUDA_CUDA_STATUS_H_
#define ATTENTION_CORE_CUDA_CUDA_STATUS_H_

#include <cuda_runtime_api.h>

#include <mutex>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace attention::cuda {

/// OK; RESOURCE_EXHAUSTED for memory that is not to be had; INTERNAL otherwise.
/// Messages name the call and the error: "cudaMemcpyAsync: an illegal memory
/// access was encountered (cudaErrorIllegalAddress)".
absl::Status StatusOf(absl::string_view call, cudaError_t error);

/// Whether a device still computes. An error in a kernel leaves the process's
/// context on the device unusable for good; every later call then fails.
class DeviceHealth {
 public:
  /// Turns the outcome of a call on the current device into a status, and finds
  /// out whether the device has survived it.
  absl::Status Check(absl::string_view call, cudaError_t error);
  /// The same of an outcome that is a status already.
  absl::Status Note(absl::Status outcome);

  /// The device is lost for a reason that no call has told, in whole words.
  void Lose(absl::string_view reason);

  /// OK, or UNAVAILABLE with the first error that the device did not survive.
  absl::Status status() const;

 private:
  mutable std::mutex mutex_;
  absl::Status lost_;
};

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_CUDA_STATUS_H_
