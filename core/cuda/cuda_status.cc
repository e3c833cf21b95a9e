#include "core/cuda/cuda_status.h"

#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"

namespace attention::cuda {

absl::Status StatusOf(absl::string_view call, cudaError_t error) {
  if (error == cudaSuccess) return absl::OkStatus();
  const std::string message =
      absl::StrCat(call, ": ", cudaGetErrorString(error), " (",
                   cudaGetErrorName(error), ")");
  if (error == cudaErrorMemoryAllocation) {
    return absl::ResourceExhaustedError(message);
  }
  return absl::InternalError(message);
}

absl::Status DeviceHealth::Check(absl::string_view call, cudaError_t error) {
  if (error == cudaSuccess) return absl::OkStatus();
  return Note(StatusOf(call, error));
}

absl::Status DeviceHealth::Note(absl::Status outcome) {
  if (outcome.ok()) return outcome;
  // Errors that pass are told once and forgotten by this; one that stays is
  // told again by whatever is called next.
  cudaGetLastError();
  size_t free = 0;
  size_t total = 0;
  const cudaError_t after = cudaMemGetInfo(&free, &total);
  if (after != cudaSuccess && after != cudaErrorMemoryAllocation) {
    Lose(absl::StrCat("the device is lost: ", outcome.message()));
  }
  return outcome;
}

void DeviceHealth::Lose(absl::string_view reason) {
  const std::lock_guard lock(mutex_);
  if (lost_.ok()) lost_ = absl::UnavailableError(reason);
}

absl::Status DeviceHealth::status() const {
  const std::lock_guard lock(mutex_);
  return lost_;
}

}  // namespace attention::cuda
