#ifndef ATTENTION_CORE_CUDA_UPLOAD_H_
#define ATTENTION_CORE_CUDA_UPLOAD_H_

#include <cstddef>

#include "absl/status/status.h"
#include "core/cuda/device.h"
#include "core/cuda/plan.h"
#include "core/validate.h"

namespace attention::cuda {

/// Begins to copy everything that a plan reads to its places in `memory`: keys
/// and values of all blocks side by side, masks in their compact forms, the
/// key ranges of all rows.
absl::Status UploadInputs(const ValidatedProblem& problem, const Plan& plan,
                          Stream& stream, std::byte* memory);

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_UPLOAD_H_
