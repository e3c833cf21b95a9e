#include "core/engine.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/inlined_vector.h"
#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/cpu/cpu_backend.h"
#include "core/cuda/child_check.h"
#include "core/cuda/cuda_backend.h"
#include "core/cuda/loader.h"
#include "core/job_device.h"
#include "core/reference/reference_backend.h"
#include "core/self_check.h"

namespace attention {
namespace {

using Backends = std::vector<std::unique_ptr<Backend>>;
// Made for each request: on the heap for many entries alone.
using ProblemList = absl::InlinedVector<const ValidatedProblem*, 8>;

constexpr char kAuto[] = "auto";
constexpr char kCuda[] = "cuda";
constexpr char kReference[] = "reference";

absl::Status FailedCheck(absl::string_view what, const absl::Status& why) {
  return absl::InternalError(
      absl::StrCat(what,
                   " is experimental and does not compute what the reference "
                   "does: ",
                   why.message()));
}

// What is computed without cuBLAS, where that is not to be had, says so.
void NoteGemm(const absl::Status& loaded, std::vector<UnusedBackend>& unused) {
  if (!loaded.ok()) unused.push_back({"cuda's cublas_gemm", loaded});
}

// Checks the plugin in a process of its own, before CUDA is used in this one.
// False where it is not to be used. Kernels that failed are left out.
bool PassesCheck(const EngineOptions& options, const std::string& plugin,
                 CudaBackendOptions& cuda_options,
                 std::vector<UnusedBackend>& unused) {
  if (options.on_self_check) options.on_self_check(kCuda);
  const cuda::ChildCheck checked =
      cuda::CheckInChild(plugin, options.self_check_patience);
  if (absl::IsFailedPrecondition(checked.status)) {
    unused.push_back({kCuda, checked.status});
  } else if (!checked.status.ok()) {
    unused.push_back({kCuda, FailedCheck(checked.devices, checked.status)});
  } else {
    if (!checked.without_wgmma.ok()) {
      unused.push_back({"cuda's fp16_wgmma and bf16_wgmma",
                        FailedCheck(checked.devices, checked.without_wgmma)});
      cuda_options.plan.wgmma = false;
    }
    NoteGemm(checked.without_gemm, unused);
  }
  return checked.status.ok();
}

// Adds the CUDA devices of this machine. That there are none is an error where
// they are asked for by name, and a note otherwise.
absl::Status AddCuda(const EngineOptions& options, Backends& backends,
                     std::vector<UnusedBackend>& unused) {
  const bool by_name = options.backend == kCuda;
  if (!by_name && options.backend != kAuto) return absl::OkStatus();
  absl::StatusOr<std::string> plugin = options.cuda_plugin;
  if (plugin->empty()) plugin = cuda::FindPlugin();
  CudaBackendOptions cuda_options;
  cuda_options.memory_limit = options.cuda_memory_limit;
  // Who asks for it by name, takes it as it is.
  if (plugin.ok() && !by_name &&
      !PassesCheck(options, *plugin, cuda_options, unused)) {
    return absl::OkStatus();
  }
  absl::StatusOr<cuda::Devices> devices =
      plugin.ok() ? cuda::OpenPlugin(*plugin)
                  : absl::StatusOr<cuda::Devices>(plugin.status());
  if (devices.ok()) {
    // The check has told otherwise.
    if (by_name) NoteGemm(devices->front()->LoadGemm(), unused);
    backends.push_back(MakeCudaBackend(*std::move(devices), cuda_options));
    return absl::OkStatus();
  }
  const absl::Status& reason = devices.status();
  if (by_name) {
    return absl::Status(reason.code(),
                        absl::StrCat("backend cuda: ", reason.message()));
  }
  unused.push_back({kCuda, reason});
  return absl::OkStatus();
}

// Every backend of this build that this machine can run, fastest first: the
// order in which auto tries them. A setting that cannot be followed is an
// error, not a backend less.
absl::StatusOr<Backends> AllBackends(const EngineOptions& options,
                                     std::vector<UnusedBackend>& unused) {
  Backends backends;
  if (absl::Status status = AddCuda(options, backends, unused); !status.ok()) {
    return status;
  }
  auto cpu = MakeCpuBackend();
  if (cpu.ok()) {
    backends.push_back(*std::move(cpu));
  } else if (!absl::IsUnavailable(cpu.status())) {
    return cpu.status();
  }
  backends.push_back(MakeReferenceBackend());
  return backends;
}

// A problem is quick up to so many multiply-adds, and as much of the rest: some
// 5 us each with the fastest kernels, 20 with the slowest, and some 100 with
// the reference, which is for machines without kernels.
constexpr double kQuickWork = 16'384;
// However small they are.
constexpr size_t kMostQuickProblems = 16;

// What takes time however narrow rows are, in multiply-adds that take as long.
// Of 4,096 heads of one query and one key, which have 8,192 multiply-adds, it
// is all: some 2 ms in FP32, 5 in FP16.
double WorkBeside(const ValidatedProblem& problem) {
  constexpr double kOfHead = 512;
  constexpr double kOfRow = 64;
  constexpr double kOfScore = 8;
  const double heads = static_cast<double>(problem.batch) *
                       static_cast<double>(problem.query_heads);
  const double rows = heads * static_cast<double>(problem.query_length);
  // Without rows there may be any number of heads, none of which is looked at.
  return kOfHead * std::min(heads, rows) +
         rows * (kOfRow + kOfScore * static_cast<double>(problem.key_length));
}

double WorkBeside(absl::Span<const ValidatedProblem> problems) {
  double work = 0;
  for (const ValidatedProblem& problem : problems) work += WorkBeside(problem);
  return work;
}

absl::Status OutOfReach(const Backend& backend, int device) {
  return absl::UnimplementedError(
      absl::StrCat("tensors lie on CUDA device ", device, ", the ",
                   backend.name(), " backend computes in host memory alone"));
}

// OK where the backend takes all of them, which lie on `device`, if any.
absl::Status CheckSupports(const Backend& backend,
                           absl::Span<const ValidatedProblem* const> problems,
                           std::optional<int> device) {
  if (device && !backend.reaches_devices()) return OutOfReach(backend, *device);
  for (const ValidatedProblem* problem : problems) {
    absl::Status status = backend.Supports(*problem);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status NotInThisBuild(absl::string_view name) {
  return absl::InvalidArgumentError(
      absl::StrCat("backend: '", name, "' is not in this build (",
                   absl::StrJoin(BackendNames(), ", "), ")"));
}

}  // namespace

std::vector<std::string> BackendNames() {
  std::vector<std::string> names = {kAuto, kCuda};
  if (!CpuTargets().empty()) names.emplace_back("cpu");
  names.emplace_back(kReference);
  return names;
}

absl::Status CheckBackendName(absl::string_view name) {
  return absl::c_linear_search(BackendNames(), name) ? absl::OkStatus()
                                                     : NotInThisBuild(name);
}

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(EngineOptions options) {
  if (options.threads < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("worker threads: ", options.threads,
                     " (expected 0 for one per processor, or more)"));
  }
  auto engine = absl::WrapUnique(new Engine());
  auto backends = AllBackends(options, engine->unused_);
  if (!backends.ok()) return backends.status();
  engine->workers_ =
      std::make_unique<WorkerPool>(options.threads, options.for_callers);
  const auto chosen = [&](const Backend& backend) {
    return options.backend == kAuto || options.backend == backend.name();
  };
  for (auto& backend : options.more_backends) {
    if (!chosen(*backend)) continue;
    absl::Status checked;
    if (options.backend == kAuto && backend->experimental()) {
      if (options.on_self_check) options.on_self_check(backend->name());
      checked = SelfCheck(*backend, *engine->workers_);
    }
    if (checked.ok()) {
      engine->backends_.push_back(std::move(backend));
    } else {
      engine->unused_.push_back(
          {static_cast<std::string>(backend->name()),
           FailedCheck(backend->instruction_set(), checked)});
    }
  }
  for (auto& backend : *backends) {
    if (chosen(*backend)) engine->backends_.push_back(std::move(backend));
  }
  if (engine->backends_.empty()) return NotInThisBuild(options.backend);
  engine->options_ = std::move(options);
  engine->MeasureCosts();
  if (const Backend* const backend = engine->BackendOfDevices()) {
    engine->pinned_ = PinnedReserve(*backend, engine->options_.pinned_bytes);
  }
  return engine;
}

bool Engine::chosen_by_name() const { return options_.backend != kAuto; }

std::optional<BackendCost> Engine::CostOf(const Backend& backend) const {
  const auto found = costs_.find(&backend);
  if (found == costs_.end()) return std::nullopt;
  return found->second;
}

// The reference is for what no other backend takes.
void Engine::MeasureCosts() {
  if (chosen_by_name() || !options_.measure_cost) return;
  auto backend = backends_.begin();
  while (backend != backends_.end() && backends_.front()->waits()) {
    if ((*backend)->name() == kReference) {
      ++backend;
      continue;
    }
    const auto cost = options_.measure_cost(**backend, *workers_,
                                            options_.self_check_patience);
    if (!cost.ok() && (*backend)->waits()) {
      unused_.push_back(
          {static_cast<std::string>((*backend)->name()),
           absl::Status(cost.status().code(),
                        absl::StrCat("it fails at the small problems that "
                                     "measure its costs: ",
                                     cost.status().message()))});
      backend = backends_.erase(backend);
      continue;
    }
    if (cost.ok()) costs_[backend->get()] = *cost;
    ++backend;
  }
}

absl::StatusOr<const Backend*> Engine::BackendFor(
    absl::Span<const ValidatedProblem* const> problems,
    std::optional<int> device) const {
  absl::Status status;
  const Backend* chosen = nullptr;
  double least = 0;
  for (const auto& backend : backends_) {
    const std::optional<BackendCost> cost = CostOf(*backend);
    if (chosen != nullptr && !cost) continue;
    absl::Status supported = CheckSupports(*backend, problems, device);
    if (!supported.ok()) {
      if (status.ok()) status = std::move(supported);
      continue;
    }
    if (!cost) return backend.get();
    const double estimate = cost->Of(problems, *backend);
    if (chosen == nullptr || estimate < least) {
      chosen = backend.get();
      least = estimate;
    }
  }
  if (chosen == nullptr) return status;
  return chosen;
}

const Backend* Engine::BackendFor(
    absl::Span<const ValidatedProblem> problems) const {
  ProblemList all;
  for (const ValidatedProblem& problem : problems) all.push_back(&problem);
  const auto device = DeviceOf(all);
  if (!device.ok()) return nullptr;
  return BackendFor(all, *device).value_or(nullptr);
}

bool Engine::IsQuick(absl::Span<const ValidatedProblem> problems) const {
  if (options_.on_tile || problems.size() > kMostQuickProblems ||
      Work(problems) > kQuickWork || WorkBeside(problems) > kQuickWork) {
    return false;
  }
  if (!backends_.front()->waits()) return true;
  const Backend* const backend = BackendFor(problems);
  return backend != nullptr && !backend->waits();
}

absl::Status Engine::Run(absl::Span<AttentionJob> jobs) const {
  if (jobs.empty()) return absl::OkStatus();
  const absl::StatusOr<std::optional<int>> device = DeviceOf(jobs);
  ProblemList problems;
  for (const AttentionJob& job : jobs) problems.push_back(job.problem);
  const absl::StatusOr<const Backend*> chosen =
      device.ok() ? BackendFor(problems, *device) : device.status();
  if (!chosen.ok()) {
    for (AttentionJob& job : jobs) job.status = chosen.status();
    return chosen.status();
  }
  const RunContext context{*workers_, options_.on_tile};
  for (AttentionJob& job : jobs) job.backend = (*chosen)->name();
  (*chosen)->Run(jobs, context);
  const auto* const failed = absl::c_find_if(
      jobs, [](const AttentionJob& job) { return !job.status.ok(); });
  if (failed == jobs.end()) return absl::OkStatus();
  TellHealth(**chosen);
  return failed->status;
}

int64_t Engine::WorkingBytes(
    absl::Span<const ValidatedProblem> problems) const {
  const Backend* const backend = BackendFor(problems);
  if (backend == nullptr) return 0;
  return backend->WorkingBytes(problems, RunContext{*workers_});
}

const Backend* Engine::BackendOfDevices() const {
  const auto found = std::find_if(
      backends_.begin(), backends_.end(),
      [](const auto& backend) { return backend->reaches_devices(); });
  return found == backends_.end() ? nullptr : found->get();
}

absl::Status Engine::CheckReachesDevices() const {
  if (BackendOfDevices() != nullptr) return absl::OkStatus();
  std::string reason = "this server does not compute on a CUDA device";
  for (const UnusedBackend& unused : unused_) {
    if (unused.name == kCuda) {
      absl::StrAppend(&reason, ": ", unused.reason.message());
    }
  }
  return absl::UnimplementedError(reason);
}

absl::StatusOr<std::unique_ptr<DeviceMemory>> Engine::MapDeviceMemory(
    absl::string_view handle, int64_t device, int64_t bytes) const {
  const Backend* const backend = BackendOfDevices();
  if (backend == nullptr) return CheckReachesDevices();
  return backend->MapDeviceMemory(handle, device, bytes);
}

std::unique_ptr<PinnedMemory> Engine::PinHostMemory(
    absl::Span<std::byte> memory) const {
  const Backend* const backend = BackendOfDevices();
  return backend == nullptr ? nullptr : backend->PinHostMemory(memory);
}

void Engine::TellHealth(const Backend& backend) const {
  const absl::Status health = backend.health();
  if (health.ok() || !options_.on_health) return;
  {
    const std::lock_guard lock(told_mutex_);
    if (told_[&backend] == health) return;
    told_[&backend] = health;
  }
  const bool serving = std::any_of(
      backends_.begin(), backends_.end(),
      [](const auto& other) { return !absl::IsUnavailable(other->health()); });
  options_.on_health(backend, health, serving);
}

}  // namespace attention
