// attention-cuda-check: the self check of a CUDA plugin, in a process that may
// hang or end (child_check.h, which reads what this writes).

#include <sys/prctl.h>

#include <csignal>
#include <cstdio>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "core/cuda/child_check.h"
#include "core/cuda/cuda_backend.h"
#include "core/cuda/device_check.h"
#include "core/cuda/kept_check.h"
#include "core/cuda/loader.h"
#include "core/self_check.h"
#include "core/worker_pool.h"

namespace attention::cuda {
namespace {

// A line, which whoever waits for it has at once.
void Say(absl::string_view what, absl::string_view about = "") {
  const std::string line =
      absl::StrCat(what, absl::StrReplaceAll(about, {{"\n", " "}}), "\n");
  std::fwrite(line.data(), 1, line.size(), stdout);
  std::fflush(stdout);
}

// Of plans with which small problems take the ways of large ones: slices on two
// streams, products in bands of few rows.
PlanOptions SmallPlan(bool wgmma) {
  PlanOptions plan;
  plan.least_gemm_elements = 1;
  plan.score_bytes = int64_t{64} << 10;
  plan.slice_bytes = 1;
  plan.slice_work = 1;
  plan.wgmma = wgmma;
  return plan;
}

// First of all, so that a failure of any case can say of which devices.
void SayDevices(const std::string& plugin) {
  absl::StatusOr<Devices> devices = OpenPlugin(plugin);
  // Why there is none, whoever opens the plugin finds out too.
  if (!devices.ok()) return;
  Say(kSaysDevices, MakeCudaBackend(*std::move(devices))->instruction_set());
}

absl::Status CheckPlan(const std::string& plugin, const PlanOptions& plan,
                       absl::string_view way) {
  absl::StatusOr<Devices> devices = OpenPlugin(plugin);
  if (!devices.ok()) return devices.status();
  CudaBackendOptions options;
  options.plan = plan;
  const auto backend = MakeCudaBackend(*std::move(devices), options);
  WorkerPool workers(0);
  return SelfCheck(*backend, workers, [way](absl::string_view name) {
    Say(kSaysCase, absl::StrCat(way, name));
  });
}

absl::Status CheckPages(const std::string& plugin, const PlanOptions& plan) {
  absl::StatusOr<Devices> devices = OpenPlugin(plugin);
  if (!devices.ok()) return devices.status();
  for (auto& device : *devices) {
    const auto on_case = [](absl::string_view name) { Say(kSaysCase, name); };
    absl::Status status = CheckKeptPages(std::move(device), plan, on_case);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status CheckDevices(const Devices& devices, bool wgmma) {
  for (const auto& device : devices) {
    const absl::Status gemm = device->LoadGemm();
    if (!gemm.ok()) Say(kSaysNoGemm, gemm.message());
  }
  for (const auto& device : devices) {
    const auto on_case = [](absl::string_view name) { Say(kSaysCase, name); };
    absl::Status status = CheckDevice(*device, on_case);
    if (!status.ok()) return status;
  }
  for (const auto& device : devices) {
    if (wgmma && device->properties().wgmma) Say(kSaysWgmma);
  }
  return absl::OkStatus();
}

int Main(const std::string& plugin, bool wgmma) {
  // Without whoever reads this, it need not go on.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  SayDevices(plugin);
  const absl::StatusOr<Devices> devices = OpenPlugin(plugin);
  absl::Status status;
  if (devices.ok()) {
    status = CheckDevices(*devices, wgmma);
    PlanOptions plan;
    plan.wgmma = wgmma;
    if (status.ok()) status = CheckPages(plugin, plan);
    if (status.ok()) status = CheckPlan(plugin, plan, "");
    if (status.ok()) {
      status = CheckPlan(plugin, SmallPlan(wgmma), "in parts: ");
    }
  }
  if (status.ok()) {
    Say(kSaysDone);
  } else {
    Say(kSaysFailed, status.message());
  }
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace attention::cuda

int main(int argc, char** argv) {
  const bool without =
      argc == 3 && absl::string_view(argv[2]) == attention::cuda::kWithoutWgmma;
  if (argc != 2 && !without) {
    std::fprintf(stderr, "usage: %s PLUGIN [%s]\n",
                 attention::cuda::kCheckProgram,
                 attention::cuda::kWithoutWgmma);
    return 2;
  }
  return attention::cuda::Main(argv[1], !without);
}
