#include "core/cuda/device_runners.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/cuda/plan.h"

namespace attention::cuda {

DeviceRunners::DeviceRunners(Devices devices,
                             std::optional<int64_t> memory_limit,
                             std::chrono::nanoseconds grace) {
  for (auto& device : devices) {
    all_.push_back(
        std::make_unique<DeviceRunner>(std::move(device), memory_limit, grace));
  }
}

DeviceRunner* DeviceRunners::Of(int64_t ordinal) const {
  for (const auto& runner : all_) {
    if (runner->device().properties().ordinal == ordinal) return runner.get();
  }
  return nullptr;
}

DeviceRunner* DeviceRunners::Next() const {
  return FirstHealthy(next_.fetch_add(1, std::memory_order_relaxed));
}

DeviceRunner* DeviceRunners::FirstHealthy(size_t first) const {
  for (size_t n = 0; n < all_.size(); ++n) {
    DeviceRunner& runner = *all_[(first + n) % all_.size()];
    if (runner.device().Health().ok()) return &runner;
  }
  return nullptr;
}

absl::Status DeviceRunners::Health() const {
  size_t lost = 0;
  std::string reasons;
  for (const auto& runner : all_) {
    const absl::Status status = runner->device().Health();
    if (status.ok()) continue;
    ++lost;
    absl::StrAppend(&reasons, reasons.empty() ? "" : "; ",
                    runner->device().properties().name, ": ", status.message());
  }
  if (lost == 0) return absl::OkStatus();
  return lost == all_.size() ? absl::UnavailableError(reasons)
                             : absl::InternalError(reasons);
}

absl::Status DeviceRunners::Supports(const ValidatedProblem& problem) const {
  absl::Status status = absl::UnavailableError("no device");
  for (const auto& runner : all_) {
    status = runner->device().Health();
    if (!status.ok()) continue;
    return CheckSupport(problem, runner->device().properties());
  }
  return status;
}

}  // namespace attention::cuda
