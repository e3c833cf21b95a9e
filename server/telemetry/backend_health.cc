#include "server/telemetry/backend_health.h"

#include <spdlog/spdlog.h>

#include <optional>
#include <string>

namespace attention::server {
namespace {

// A build or a machine without a GPU is as it should be; files that are there
// and do not work are not.
spdlog::level::level_enum LevelOf(const absl::Status& reason) {
  if (absl::IsNotFound(reason)) return spdlog::level::debug;
  if (absl::IsFailedPrecondition(reason) || absl::IsInternal(reason)) {
    return spdlog::level::warn;
  }
  return spdlog::level::info;
}

}  // namespace

void BackendHealth::LogSelfCheck(absl::string_view backend) {
  spdlog::info("backend {}: comparing each kernel with the reference",
               static_cast<std::string>(backend));
}

void BackendHealth::LogBackends(const Engine& engine) {
  for (const auto& backend : engine.backends()) {
    if (const std::optional<BackendCost> cost = engine.CostOf(*backend)) {
      spdlog::info(
          "backend {}: auto reckons with {:.1f} us for a problem, {:.3g} ns "
          "for a thousand multiply-adds and {:.3g} ns for a KiB",
          static_cast<std::string>(backend->name()), cost->of_problem / 1e3,
          cost->of_multiply_add * 1e3, cost->of_byte * 1024);
    }
    if (!backend->experimental()) continue;
    spdlog::warn(
        "backend {} on {} is experimental: its kernels have not been "
        "tested on a real device yet{}",
        static_cast<std::string>(backend->name()), backend->instruction_set(),
        engine.chosen_by_name()
            ? ""
            : "; used because it agreed with the reference in the "
              "check at start");
  }
  for (const UnusedBackend& unused : engine.unused()) {
    spdlog::log(LevelOf(unused.reason), "backend {} is not used: {}",
                unused.name, static_cast<std::string>(unused.reason.message()));
  }
}

void BackendHealth::Note(const Backend& backend, const absl::Status& health,
                         bool serving) {
  spdlog::error("backend {}: {}{}", static_cast<std::string>(backend.name()),
                static_cast<std::string>(health.message()),
                serving ? "" : "; no backend is left, not serving any more");
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
