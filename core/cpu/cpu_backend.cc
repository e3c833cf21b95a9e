#include "core/cpu/cpu_backend.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/cpu/job_run.h"
#include "core/cpu/kernels.h"

namespace attention {
namespace {

constexpr char kTargetVariable[] = "ATTENTION_CPU_TARGET";

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(const cpu::Kernels& kernels) : kernels_(kernels) {}

  absl::string_view name() const override { return "cpu"; }
  std::string instruction_set() const override { return kernels_.name; }

  absl::Status Supports(const ValidatedProblem&) const override {
    return absl::OkStatus();  // Validate() admits host memory alone
  }

  void Run(absl::Span<AttentionJob> jobs,
           const RunContext& context) const override {
    for (AttentionJob& job : jobs) {
      job.kernel = "fp32_tiles";
      cpu::JobRun(job, context, kernels_).Run();
    }
  }

 private:
  const cpu::Kernels& kernels_;
};

}  // namespace

std::vector<std::string> CpuTargets() {
  std::vector<std::string> names;
  for (const int64_t* t = cpu::AvailableTargets(); *t != 0; ++t) {
    names.emplace_back(cpu::KernelsOf(*t).name);
  }
  return names;
}

absl::StatusOr<std::unique_ptr<Backend>> MakeCpuBackend(
    const std::string& target) {
  const int64_t* const targets = cpu::AvailableTargets();
  if (*targets == 0) {
    return absl::UnavailableError("no CPU kernels for this processor");
  }
  std::string wanted = target;
  absl::string_view source = "CPU target";
  if (const char* set = std::getenv(kTargetVariable);
      wanted.empty() && set != nullptr) {
    wanted = set;
    source = kTargetVariable;
  }
  for (const int64_t* t = targets; *t != 0; ++t) {
    const cpu::Kernels& kernels = cpu::KernelsOf(*t);
    if (wanted.empty() || wanted == kernels.name) {
      return std::make_unique<CpuBackend>(kernels);
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat(source, ": '", wanted, "' is not to be had here (",
                   absl::StrJoin(CpuTargets(), ", "), ")"));
}

}  // namespace attention
