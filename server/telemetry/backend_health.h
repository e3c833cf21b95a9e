#ifndef ATTENTION_SERVER_TELEMETRY_BACKEND_HEALTH_H_
#define ATTENTION_SERVER_TELEMETRY_BACKEND_HEALTH_H_

#include <grpcpp/health_check_service_interface.h>

#include <mutex>

#include "absl/strings/string_view.h"
#include "core/engine.h"

namespace attention::server {

/// Says in the log what backends can and cannot do, and in the health service
/// when no backend is left. Safe for several threads at once.
class BackendHealth {
 public:
  /// The log line before a backend is checked against the reference.
  static void LogSelfCheck(absl::string_view backend);
  /// The log lines at the start: backends that are experimental, and those that
  /// "auto" passes over.
  static void LogBackends(const Engine& engine);

  /// What EngineOptions::on_health tells.
  void Note(const Backend& backend, const absl::Status& health, bool serving);

  /// False where no backend is left.
  bool serving() const;

  /// Where Note() says that nothing is served any more, also what it has said
  /// before this; null: nowhere from now on.
  void Attach(grpc::HealthCheckServiceInterface* service);

 private:
  mutable std::mutex mutex_;
  grpc::HealthCheckServiceInterface* service_ = nullptr;
  bool serving_ = true;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_TELEMETRY_BACKEND_HEALTH_H_
