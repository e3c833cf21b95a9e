#ifndef ATTENTION_CORE_CUDA_KEPT_JOBS_H_
#define ATTENTION_CORE_CUDA_KEPT_JOBS_H_

#include <cstddef>
#include <list>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "core/backend.h"
#include "core/cuda/device_pages.h"
#include "core/cuda/device_runner.h"
#include "core/validate.h"

namespace attention::cuda {

/// Whether all keys of a problem lie in pages that stay, in the host's memory.
bool HasKeptPages(const ValidatedProblem& problem);

/// Jobs of one device whose keys lie in pages that stay. They are computed as
/// jobs whose keys lie in the device's memory: there the pages are copied, and
/// kept.
class KeptJobs {
 public:
  explicit KeptJobs(DeviceRunner& runner) : runner_(runner) {}

  /// Takes a job with HasKeptPages(). False, and it is left to the caller,
  /// where there is no room for its pages.
  bool Add(AttentionJob& job);

  /// Brings what pages lack, lets `run` compute the jobs, and writes what
  /// became of them. Gives those for which there was not memory enough beside
  /// the pages, which may fit without.
  std::vector<AttentionJob*> Run(
      absl::FunctionRef<void(absl::Span<AttentionJob* const>)> run);

 private:
  struct Kept {
    AttentionJob* job;
    DevicePages::Hold hold;
    ValidatedProblem problem;  // its keys in the device's memory
    AttentionJob on_device;
  };

  void Bring();

  DeviceRunner& runner_;
  std::list<Kept> jobs_;  // a job points to its problem
};

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_KEPT_JOBS_H_
