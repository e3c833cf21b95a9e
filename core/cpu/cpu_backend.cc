#include "core/cpu/cpu_backend.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/cpu/job_batch.h"
#include "core/cpu/kernels/kernels.h"
#include "core/cpu/targets.h"

namespace attention {
namespace {

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(const cpu::Kernels& kernels) : kernels_(kernels) {}

  absl::string_view name() const override { return "cpu"; }
  std::string instruction_set() const override { return kernels_.name; }

  absl::Status Supports(const ValidatedProblem&) const override {
    return absl::OkStatus();  // the engine asks nobody for memory out of reach
  }

  int64_t WorkingBytes(absl::Span<const ValidatedProblem> problems,
                       const RunContext& context) const override {
    return cpu::WorkingBytes(problems, context, kernels_, kThreadBytes);
  }

  void Run(absl::Span<AttentionJob> jobs,
           const RunContext& context) const override {
    cpu::RunTogether(jobs, context, kernels_);
  }

 private:
  const cpu::Kernels& kernels_;
};

}  // namespace

std::unique_ptr<Backend> MakeCpuBackend(const cpu::Kernels& kernels) {
  return std::make_unique<CpuBackend>(kernels);
}

std::vector<std::string> CpuTargets() {
  std::vector<std::string> names;
  for (const cpu::Kernels& kernels : cpu::Targets()) {
    names.emplace_back(kernels.name);
  }
  return names;
}

absl::StatusOr<std::unique_ptr<Backend>> MakeCpuBackend(
    const std::string& target) {
  if (cpu::Targets().empty()) {
    return absl::UnavailableError("no CPU kernels for this processor");
  }
  std::string wanted = target;
  absl::string_view source = "CPU target";
  if (const char* set = std::getenv(kCpuTargetVariable);
      wanted.empty() && set != nullptr) {
    wanted = set;
    source = kCpuTargetVariable;
  }
  for (const cpu::Kernels& kernels : cpu::Targets()) {
    if (wanted.empty() || wanted == kernels.name) {
      return MakeCpuBackend(kernels);
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat(source, ": '", wanted, "' is not to be had here (",
                   absl::StrJoin(CpuTargets(), ", "), ")"));
}

}  // namespace attention
