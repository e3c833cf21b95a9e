#include "server/server_parts.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/memory/memory_limit.h"
#include "server/options/option_checks.h"

namespace attention::server {
namespace {

// Of the memory limit, and in bytes: pinned memory is nobody else's, and a
// machine has only so much.
constexpr int64_t kPinnedShare = 16;
constexpr int64_t kMostPinned = int64_t{512} << 20;

}  // namespace

absl::StatusOr<std::unique_ptr<ModelRepository>> OpenRepository(
    const ServerOptions& options) {
  if (options.model_repository.empty()) {
    return std::make_unique<ModelRepository>();
  }
  absl::StatusOr<std::unique_ptr<ModelRepository>> repository =
      ModelRepository::Open(options.model_repository, options.memory_limit);
  if (repository.ok()) return repository;
  return absl::Status(
      repository.status().code(),
      absl::StrCat("--model-repository: ", repository.status().message()));
}

ServerOptions WithMemoryLimit(ServerOptions options, int threads) {
  if (options.memory_limit > 0) return options;
  const MemoryBound bound = SmallestBound(MemorySources::OfProcess(threads));
  options.memory_limit = DefaultMemoryLimit(bound);
  spdlog::debug(absl::StrCat("memory limit: ", options.memory_limit,
                             " bytes, 80 % of ", bound.of));
  return options;
}

absl::StatusOr<std::unique_ptr<Tls>> OpenTls(const ServerOptions& options) {
  if (options.tls_certificate.empty()) return nullptr;
  return Tls::Create(options);
}

absl::StatusOr<std::unique_ptr<Callers>> OpenCallers(const std::string& file) {
  if (file.empty()) return nullptr;
  return Callers::Create(file);
}

absl::Status CheckReach(const ServerOptions& options, const TcpListener& tcp) {
  if (tcp.loopback || options.insecure || !options.tls_certificate.empty()) {
    return absl::OkStatus();
  }
  return WrongOptionError(absl::StrCat(
      "--grpc-address: '", options.grpc_address,
      "' is reached from other machines, without encryption (expected "
      "--tls-certificate and --tls-key; or --insecure, where nobody else reads "
      "the network or a proxy in front encrypts; or 127.0.0.1)"));
}

absl::StatusOr<std::unique_ptr<Engine>> CreateEngine(
    const ServerOptions& options, TestHooks hooks,
    std::shared_ptr<BackendHealth> health) {
  EngineOptions engine;
  engine.threads = options.worker_threads;
  engine.backend = options.backend;
  engine.on_tile = std::move(hooks.on_tile);
  // Those of tests come first, however slow.
  if (!hooks.more_backends.empty()) engine.measure_cost = nullptr;
  engine.more_backends = std::move(hooks.more_backends);
  if (options.cuda_memory_limit > 0) {
    engine.cuda_memory_limit = options.cuda_memory_limit;
  }
  engine.pinned_bytes =
      std::min(options.memory_limit / kPinnedShare, kMostPinned);
  engine.on_self_check = BackendHealth::LogSelfCheck;
  engine.on_health = [health = std::move(health)](const Backend& backend,
                                                  const absl::Status& status,
                                                  bool serving) {
    health->Note(backend, status, serving);
  };
  return Engine::Create(std::move(engine));
}

}  // namespace attention::server
