#ifndef ATTENTION_CORE_CUDA_JOB_TRANSFER_H_
#define ATTENTION_CORE_CUDA_JOB_TRANSFER_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "core/backend.h"
#include "core/cuda/device.h"
#include "core/cuda/plan.h"
#include "core/cuda/transfer.h"
#include "core/tensor_view.h"
#include "core/validate.h"

/// Between where a job's tensors are, in the host's memory or the device's, and
/// where its kernels want them.
namespace attention::cuda {

/// Begins to copy everything that a plan reads and that is not in place to its
/// places in `memory`: keys and values of all blocks side by side, masks in
/// their compact forms, the key ranges of all rows. `workers` copy what is
/// large to the staging buffers.
absl::Status UploadInputs(const ValidatedProblem& problem, const Plan& plan,
                          const KernelTable& kernels, Stream& stream,
                          std::byte* memory, WorkerPool& workers);

/// The same through an uploader that goes on with the next job's: the last
/// copies are begun by its Finish().
absl::Status UploadInputs(const ValidatedProblem& problem, const Plan& plan,
                          const KernelTable& kernels, Stream& stream,
                          std::byte* memory, Uploader& up);

/// Copies the results from `memory` to where the job wants them, those that
/// are not there already. Those in host memory are there when it returns.
absl::Status DownloadResults(const AttentionJob& job, const Plan& plan,
                             const KernelTable& kernels, Stream& stream,
                             const std::byte* memory);

/// The same through a downloader: they are there after its Finish().
absl::Status DownloadResults(const AttentionJob& job, const Plan& plan,
                             const KernelTable& kernels, Stream& stream,
                             const std::byte* memory, Downloader& down);

/// One head and batch entry of a view of four extents: (length, width).
TensorView HeadOf(const TensorView& view, int64_t batch, int64_t head);

/// Writes the results of a problem for which nothing is computed
/// (Method::kNothing); those in device memory are written by `stream`, which
/// may be null where there are none.
absl::Status WriteEmptyResults(const AttentionJob& job, Stream* stream);

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_JOB_TRANSFER_H_
