#include "core/job_device.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace attention {
namespace {

class Finder {
 public:
  template <typename View>
  void Look(absl::string_view name, const View& view) {
    if (!status_.ok() || view.space != MemorySpace::kCudaDevice) return;
    if (!device_) {
      device_ = view.device;
      first_ = name;
    } else if (*device_ != view.device) {
      status_ = absl::InvalidArgumentError(absl::StrCat(
          name, ": lies on CUDA device ", view.device, ", ", first_,
          " on device ", *device_, " (one device is expected)"));
    }
  }

  absl::StatusOr<std::optional<int>> Found() const {
    if (!status_.ok()) return status_;
    return device_;
  }

 private:
  absl::Status status_;
  std::optional<int> device_;
  absl::string_view first_;
};

void LookAt(const ValidatedProblem& problem, Finder& finder) {
  finder.Look("query", problem.query);
  for (const ValidatedProblem::Block& block : problem.key_value) {
    finder.Look("key", block.key);
    finder.Look("value", block.value);
  }
  if (problem.bias) finder.Look("bias", *problem.bias);
}

void LookAt(const AttentionJob& job, Finder& finder) {
  const ValidatedProblem& problem = *job.problem;
  LookAt(problem, finder);
  finder.Look("output", job.outputs.output);
  if (problem.wanted.weights) finder.Look("weights", job.outputs.weights);
  if (problem.wanted.lse) finder.Look("lse", job.outputs.lse);
  if (problem.wanted.top_k) {
    finder.Look("top_k_indices", job.outputs.top_k_indices);
    finder.Look("top_k_weights", job.outputs.top_k_weights);
  }
  if (problem.wanted.key_weights) {
    finder.Look("key_weights", job.outputs.key_weights);
  }
  if (problem.wanted.scores) finder.Look("scores", job.outputs.scores);
}

}  // namespace

absl::StatusOr<std::optional<int>> DeviceOf(
    absl::Span<const AttentionJob> jobs) {
  Finder finder;
  for (const AttentionJob& job : jobs) LookAt(job, finder);
  return finder.Found();
}

absl::StatusOr<std::optional<int>> DeviceOf(
    absl::Span<const ValidatedProblem* const> problems) {
  Finder finder;
  for (const ValidatedProblem* problem : problems) LookAt(*problem, finder);
  return finder.Found();
}

}  // namespace attention
