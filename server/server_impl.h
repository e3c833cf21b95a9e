#ifndef ATTENTION_SERVER_SERVER_IMPL_H_
#define ATTENTION_SERVER_SERVER_IMPL_H_

#include <grpcpp/server.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>

#include "absl/status/statusor.h"
#include "core/engine.h"
#include "server/callers/callers.h"
#include "server/http/http_port.h"
#include "server/http/protocol/inference_api.h"
#include "server/memory/shared_memory_registry.h"
#include "server/models/model_repository.h"
#include "server/models/model_table.h"
#include "server/resident/resident_store.h"
#include "server/scheduling/serial_queue.h"
#include "server/server.h"
#include "server/services/attention_service.h"
#include "server/services/call_counter.h"
#include "server/services/inference_management.h"
#include "server/services/inference_service.h"
#include "server/services/key_value_service.h"
#include "server/services/reflection_service.h"
#include "server/shards/peers.h"
#include "server/shards/shard_service.h"
#include "server/telemetry/backend_health.h"
#include "server/transport/acceptor.h"
#include "server/transport/call_watch.h"
#include "server/transport/connection_limits.h"
#include "server/transport/connections.h"
#include "server/transport/tls.h"

namespace attention::server {

/// What is left to a connection after the last call: time to flush a status,
/// and for an open health Watch to see NOT_SERVING before it is cut.
inline constexpr std::chrono::milliseconds kFlushTime{500};

/// What a server consists of. Members are destroyed from the last to the first:
/// each one may be used by those below it.
struct Server::Impl {
  Impl(ServerOptions server_options, std::unique_ptr<Engine> built_engine,
       std::unique_ptr<ModelRepository> opened_repository,
       std::unique_ptr<ResidentStore> resident_store,
       std::shared_ptr<BackendHealth> backend_health,
       std::unique_ptr<Tls> encryption, std::unique_ptr<Callers> known_callers,
       const ConnectionLimits& connection_limits,
       std::shared_ptr<Ledger> counts, std::unique_ptr<HttpPort> http_port);
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  /// What every task is given.
  TaskServices services();

  /// Starts gRPC and what watches over it. Returns the port that was taken;
  /// errors as Server::Start() has them.
  absl::StatusOr<int> Listen();
  /// What calls are bounded by.
  CallGuards Guards();

  /// False while it drains, and where no backend is left: what every kind of
  /// health says.
  bool IsReady() const;

  /// Has the HTTP port, if there is one, tell of this server.
  void ServeHttp();

  /// Ends the connections when all calls have been answered.
  void CloseConnections();

  const ServerOptions options;  // as in effect: no memory limit of 0
  const std::shared_ptr<BackendHealth> health;
  const std::unique_ptr<Tls> tls;          // none: plain text
  const std::unique_ptr<Callers> callers;  // none: everybody
  const std::shared_ptr<Ledger> ledger;
  const OpenCallLimits open_calls = OpenCallLimits::For(options.memory_limit);
  Connections connections;
  Admission admission;
  ActiveCalls calls{Guards()};
  std::unique_ptr<ModelRepository> repository;
  ModelTable models;
  SharedMemoryRegistry regions;
  std::unique_ptr<ResidentStore> resident;
  std::atomic<bool> reads_files_again{false};  // waits for its turn
  SerialQueue repository_queue{"the model repository"};
  SerialQueue sequence_files{"the folder of sequences"};
  CostModel costs;
  RequestMetrics metrics;
  CallCounter other_calls;         // without tensors
  std::unique_ptr<HttpPort> http;  // null: switched off
  std::unique_ptr<Engine> engine;  // waits for tasks that still return
  RequestQueue queue;
  AttentionService service;
  KeyValueService key_values;
  Peers peers;
  ShardService shards;
  InferenceManagement management;
  InferenceService inference;
  Reflection reflection;
  ReflectionService reflection_service{reflection};
  OldReflectionService old_reflection_service{reflection};
  std::unique_ptr<grpc::Server> grpc_server;
  std::optional<CallWatch> call_watch;
  std::optional<Acceptor> acceptor;
  std::unique_ptr<InferenceApi> http_inference;  // null: not served
  std::once_flag drained;
  bool drained_quietly = true;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_SERVER_IMPL_H_
