#ifndef ATTENTION_CORE_CUDA_CUDA_JOB_H_
#define ATTENTION_CORE_CUDA_CUDA_JOB_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "core/backend.h"
#include "core/cuda/device.h"
#include "core/cuda/gemm.h"
#include "core/cuda/plan.h"

namespace attention::cuda {

/// The plan's arguments with pointers to where the job's tensors lie: in place,
/// or in `memory`, which holds plan.bytes of device memory. Projected rows are
/// taken to be there.
AttentionArgs ArgsOf(const AttentionJob& job, const Plan& plan,
                     const Stream& stream, std::byte* memory);

/// One job on one stream: inputs up, kernels, results down. It can be stopped
/// before each launch.
class CudaJob {
 public:
  /// `memory` holds plan.bytes of device memory. Everything must outlive this.
  CudaJob(AttentionJob& job, const RunContext& context, const Plan& plan,
          Device& device, Stream& stream, std::byte* memory);
  CudaJob(const CudaJob&) = delete;
  CudaJob& operator=(const CudaJob&) = delete;

  /// Begin() and End(): OK, CANCELLED or the device's error. Counts the
  /// launches in the job's tiles.
  absl::Status Run();

  /// Uploads and computes. The work goes on when it returns.
  absl::Status Begin();
  /// Downloads, where `begun`, what Begin() returned, is OK. When it returns,
  /// the stream is done with the memory, whatever has happened. The first error
  /// of both.
  absl::Status End(absl::Status begun);

  /// The parts of it, for who measures them: each begins its work on the
  /// stream, and only the last one waits for it.
  absl::Status Upload();
  absl::Status Compute();
  absl::Status Download();

 private:
  // What is computed, in order. Each counts its launches, and may be stopped
  // before them.
  struct Step {
    int64_t launches;
    std::function<absl::Status()> run;
  };
  void SetSteps();
  // Where a row was marked; brings the results once more.
  absl::Status Recompute();
  template <typename Args>
  using Kernel = int (*)(const Args&, const LaunchShape&, void* stream);
  template <typename Args>
  Step StepOf(absl::string_view kernel, const Args& args,
              const LaunchShape& shape, Kernel<Args> launch);
  template <typename Args>
  void AddStep(absl::string_view kernel, const Args& args,
               const LaunchShape& shape, Kernel<Args> launch) {
    steps_.push_back(StepOf(kernel, args, shape, launch));
  }
  void AddProjection(ProjectArgs args, const void* from, const Buffer& matrix,
                     const Buffer& to);
  absl::Status Gemms();
  absl::Status GemmOf(const GemmRows& rows);

  // CANCELLED once a stop was requested; otherwise counts a launch.
  absl::Status BeginLaunch();

  AttentionJob& job_;
  const ValidatedProblem& problem_;
  const RunContext& context_;
  const Plan& plan_;
  const KernelTable& kernels_;
  Stream& stream_;
  std::byte* const memory_;
  AttentionArgs args_;  // the plan's, with pointers
  std::vector<Step> steps_;
  std::optional<Step> recompute_;  // where a row was marked
};

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_CUDA_JOB_H_
