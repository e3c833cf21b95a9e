#include "core/engine.h"

#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/cpu/cpu_backend.h"
#include "core/reference/reference_backend.h"

namespace attention {
namespace {

// Every backend of this build that this machine can run, fastest first: the
// order in which auto tries those that are not experimental. A setting that
// cannot be followed is an error, not a backend less.
absl::StatusOr<std::vector<std::unique_ptr<Backend>>> AllBackends() {
  std::vector<std::unique_ptr<Backend>> backends;
  auto cpu = MakeCpuBackend();
  if (cpu.ok()) {
    backends.push_back(*std::move(cpu));
  } else if (!absl::IsUnavailable(cpu.status())) {
    return cpu.status();
  }
  backends.push_back(MakeReferenceBackend());
  return backends;
}

}  // namespace

std::vector<std::string> BackendNames() {
  std::vector<std::string> names = {"auto"};
  if (!CpuTargets().empty()) names.emplace_back("cpu");
  names.emplace_back("reference");
  return names;
}

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(EngineOptions options) {
  if (options.threads < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("worker threads: ", options.threads,
                     " (expected 0 for one per processor, or more)"));
  }
  auto backends = AllBackends();
  if (!backends.ok()) return backends.status();
  auto engine = absl::WrapUnique(new Engine());
  for (auto& backend : *backends) {
    const bool by_itself =
        options.backend == "auto" && !backend->experimental();
    if (by_itself || options.backend == backend->name()) {
      engine->backends_.push_back(std::move(backend));
    }
  }
  if (engine->backends_.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("backend: '", options.backend, "' is not in this build (",
                     absl::StrJoin(BackendNames(), ", "), ")"));
  }
  engine->workers_ = std::make_unique<WorkerPool>(options.threads);
  engine->options_ = std::move(options);
  return engine;
}

absl::Status Engine::Run(AttentionJob& job) const {
  const RunContext context{*workers_, options_.on_tile};
  job.status = absl::UnimplementedError("no backend");
  for (const auto& backend : backends_) {
    job.status = backend->Supports(*job.problem);
    if (!job.status.ok()) continue;
    job.backend = backend->name();
    backend->Run(absl::MakeSpan(&job, 1), context);
    break;
  }
  return job.status;
}

}  // namespace attention
