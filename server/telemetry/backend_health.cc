#include "server/telemetry/backend_health.h"

#include <spdlog/spdlog.h>

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace attention::server {
namespace {

// A build or a machine without a GPU is as it should be; files that are there
// and do not work are not.
spdlog::level::level_enum LevelOf(const absl::Status& reason) {
  if (absl::IsNotFound(reason)) return spdlog::level::debug;
  if (absl::IsFailedPrecondition(reason) || absl::IsInternal(reason) ||
      absl::IsResourceExhausted(reason)) {
    return spdlog::level::warn;
  }
  return spdlog::level::info;
}

}  // namespace

void BackendHealth::LogSelfCheck(absl::string_view backend) {
  spdlog::info(absl::StrCat("backend ", backend,
                            ": comparing each kernel with the reference"));
}

void BackendHealth::LogBackends(const Engine& engine) {
  for (const auto& backend : engine.backends()) {
    if (const std::optional<BackendCost> cost = engine.CostOf(*backend)) {
      spdlog::info(absl::StrFormat(
          "backend %s: auto reckons with %.1f us for a problem, %.3g ns for a "
          "thousand multiply-adds and %.3g ns for a KiB",
          backend->name(), cost->of_problem / 1e3, cost->of_multiply_add * 1e3,
          cost->of_byte * 1024));
    }
    if (!backend->experimental()) continue;
    spdlog::warn(absl::StrCat(
        "backend ", backend->name(), " on ", backend->instruction_set(),
        " is experimental: its kernels have not been tested on a real device "
        "yet",
        engine.chosen_by_name()
            ? ""
            : "; used because it agreed with the reference in the "
              "check at start"));
  }
  if (engine.CheckReachesDevices().ok()) {
    const int64_t pinned = engine.pinned().size();
    spdlog::info(pinned > 0
                     ? absl::StrCat(pinned >> 20,
                                    " MiB of host memory are pinned "
                                    "for tensors of requests")
                     : "no host memory is pinned for tensors of requests: they "
                       "are copied twice");
  }
  for (const UnusedBackend& unused : engine.unused()) {
    spdlog::log(LevelOf(unused.reason),
                absl::StrCat("backend ", unused.name,
                             " is not used: ", unused.reason.message()));
  }
}

void BackendHealth::Note(const Backend& backend, const absl::Status& health,
                         bool serving) {
  spdlog::error(absl::StrCat(
      "backend ", backend.name(), ": ", health.message(),
      serving ? "" : "; no backend is left, not serving any more"));
  const std::lock_guard lock(mutex_);
  serving_ = serving_ && serving;
  if (!serving_ && service_ != nullptr) service_->SetServingStatus(false);
}

void BackendHealth::Attach(grpc::HealthCheckServiceInterface* service) {
  const std::lock_guard lock(mutex_);
  service_ = service;
  if (!serving_ && service_ != nullptr) service_->SetServingStatus(false);
}

bool BackendHealth::serving() const {
  const std::lock_guard lock(mutex_);
  return serving_;
}

}  // namespace attention::server
