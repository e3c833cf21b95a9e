#ifndef ATTENTION_SERVER_SERVER_PARTS_H_
#define ATTENTION_SERVER_SERVER_PARTS_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "core/engine.h"
#include "server/callers/callers.h"
#include "server/models/model_repository.h"
#include "server/options/options.h"
#include "server/server.h"
#include "server/telemetry/backend_health.h"
#include "server/transport/tcp_listener.h"
#include "server/transport/tls.h"

/// What a server is put together from, by its options. Errors name the option.
namespace attention::server {

/// The options as they are in effect for a server that makes so many threads:
/// no memory limit of 0.
ServerOptions WithMemoryLimit(ServerOptions options, int threads);

/// Empty where no directory is named.
absl::StatusOr<std::unique_ptr<ModelRepository>> OpenRepository(
    const ServerOptions& options);

/// Null where connections are in plain text.
absl::StatusOr<std::unique_ptr<Tls>> OpenTls(const ServerOptions& options);

/// Null where everybody is served.
absl::StatusOr<std::unique_ptr<Callers>> OpenCallers(const std::string& file);

/// INVALID_ARGUMENT where others than this machine would reach the port in
/// plain text and nobody has chosen that.
absl::Status CheckReach(const ServerOptions& options, const TcpListener& tcp);

/// It tells `health` of its backends.
absl::StatusOr<std::unique_ptr<Engine>> CreateEngine(
    const ServerOptions& options, TestHooks hooks,
    std::shared_ptr<BackendHealth> health);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_SERVER_PARTS_H_
