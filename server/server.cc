#include "server/server.h"

#include <grpc/grpc.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "core/engine.h"
#include "core/worker_pool.h"
#include "server/base/room_to_start.h"
#include "server/callers/callers.h"
#include "server/http/http_port.h"
#include "server/http/metrics_page.h"
#include "server/http/protocol/inference_api.h"
#include "server/memory/allocator.h"
#include "server/memory/shared_memory_registry.h"
#include "server/models/model_repository.h"
#include "server/models/model_table.h"
#include "server/options/option_checks.h"
#include "server/resident/resident_store.h"
#include "server/scheduling/serial_queue.h"
#include "server/server_parts.h"
#include "server/services/attention_service.h"
#include "server/services/call_counter.h"
#include "server/services/inference_management.h"
#include "server/services/inference_service.h"
#include "server/services/key_value_service.h"
#include "server/services/reflection_service.h"
#include "server/telemetry/backend_health.h"
#include "server/transport/acceptor.h"
#include "server/transport/call_watch.h"
#include "server/transport/channelz.h"
#include "server/transport/connection_limits.h"
#include "server/transport/connections.h"
#include "server/transport/grpc_handovers.h"
#include "server/transport/grpc_limits.h"
#include "server/transport/tcp_listener.h"
#include "server/transport/tls.h"
#include "server/transport/unix_socket.h"

namespace attention::server {
namespace {

// Sockets of one kind that are given to gRPC at once.
constexpr int kHandovers = 16;

// What is left to a connection after the last call: time to flush a status, and
// for an open health Watch to see NOT_SERVING before it is cut.
constexpr std::chrono::milliseconds kFlushTime{500};

// Of gRPC, with some that it makes under load.
constexpr int kThreadsBesideWorkers = 18;

// Over HTTP; where file descriptors are few, that many of them at most.
constexpr int64_t kMostHttpConnections = 1024;
constexpr int64_t kHttpShareOfDescriptors = 8;

// Between the last answer and the end of connections: replies of calls that are
// not counted are handed to gRPC, and not yet sent.
constexpr std::chrono::milliseconds kSettleTime{200};

// What messages on their way may take in gRPC, and over HTTP: half of all.
int64_t MessageMemory(const ServerOptions& options) {
  return options.memory_limit / 2 - BodyMemory(options);
}

// What reflection lists.
std::vector<std::string> ServiceNames() {
  return {v1::AttentionService::service_full_name(),
          v1::KeyValueService::service_full_name(),
          inference::GRPCInferenceService::service_full_name(),
          "grpc.health.v1.Health",
          grpc::reflection::v1::ServerReflection::service_full_name(),
          grpc::reflection::v1alpha::ServerReflection::service_full_name()};
}

}  // namespace

// Members are destroyed from the last to the first: each one may be used by
// those below it.
struct Server::Impl {
  Impl(ServerOptions server_options, std::unique_ptr<Engine> built_engine,
       std::unique_ptr<ModelRepository> opened_repository,
       std::unique_ptr<ResidentStore> resident_store,
       std::shared_ptr<BackendHealth> backend_health,
       std::unique_ptr<Tls> encryption, std::unique_ptr<Callers> known_callers,
       const ConnectionLimits& connection_limits,
       std::shared_ptr<Ledger> counts, std::unique_ptr<HttpPort> http_port)
      : options(std::move(server_options)),
        health(std::move(backend_health)),
        tls(std::move(encryption)),
        callers(std::move(known_callers)),
        ledger(std::move(counts)),
        connections(*ledger, connection_limits, open_calls.per_address),
        admission(*ledger, options.max_requests_in_flight,
                  options.memory_limit / 2),
        repository(std::move(opened_repository)),
        models(*repository),
        resident(std::move(resident_store)),
        http(std::move(http_port)),
        engine(std::move(built_engine)),
        queue(engine->workers()),
        service(options, *engine, services(), calls, *repository, *resident),
        key_values(services(), calls, *resident, sequence_files),
        management(options, *engine, *repository, repository_queue, models,
                   regions),
        inference(options, *engine, services(), calls, management, models,
                  regions, *resident) {
    if (callers != nullptr) {
      callers->OnChange([this] { calls.TellCallersChanged(); });
    }
  }

  ~Impl() {
    if (callers != nullptr) callers->OnChange(nullptr);
    // Whoever asked over HTTP waits for a model that is still loading.
    repository_queue.Stop();
    sequence_files.Stop();
    // Its replies are still taken while tasks end.
    if (http != nullptr) http->Stop();
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  TaskServices services() {
    TaskServices services{engine->workers(), admission, queue, costs,
                          callers.get()};
    services.metrics = &metrics;
    services.max_requests_per_second = options.max_requests_per_second;
    services.max_bytes_per_second = options.max_bytes_per_second;
    if (options.max_compute_time.count() > 0) {
      services.max_compute_time = options.max_compute_time;
    }
    return services;
  }

  // The port that was taken.
  absl::StatusOr<int> Listen();
  CallGuards Guards();

  // Has the HTTP port tell of this server.
  void ServeHttp();

  // Ends the connections when all calls have been answered.
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
  InferenceManagement management;
  InferenceService inference;
  Reflection reflection{ServiceNames(), calls};
  ReflectionService reflection_service{reflection};
  OldReflectionService old_reflection_service{reflection};
  std::unique_ptr<grpc::Server> grpc_server;
  std::optional<CallWatch> call_watch;
  std::optional<Acceptor> acceptor;
  std::unique_ptr<InferenceApi> http_inference;  // null: not served
  std::once_flag drained;
  bool drained_quietly = true;
};

CallGuards Server::Impl::Guards() {
  return {.reply_timeout = options.reply_timeout,
          .check_room =
              [this](const std::string& peer) {
                const std::optional<Peer> of = PeerOfCall(peer);
                return of ? open_calls.CheckRoom(*ledger, of->address)
                          : absl::OkStatus();
              },
          .note_reset =
              [this](const std::string& peer) { connections.NoteReset(peer); },
          .close_connection =
              [this](const std::string& peer) { connections.Close(peer); }};
}

absl::StatusOr<int> Server::Impl::Listen() {
  absl::StatusOr<TcpListener> tcp =
      ListenOnTcp(options.grpc_address, options.grpc_port);
  if (!tcp.ok()) return tcp.status();
  if (absl::Status reach = CheckReach(options, *tcp); !reach.ok()) return reach;
  grpc::ServerBuilder builder;
  std::vector<Acceptor::Way> ways;
  ways.push_back(
      {std::move(tcp->sockets),
       Handovers(kHandovers,
                 tls ? tls->credentials() : grpc::InsecureServerCredentials(),
                 builder)});
  if (!options.grpc_unix_socket.empty()) {
    absl::StatusOr<FileDescriptor> socket =
        ListenOnUnixSocket(options.grpc_unix_socket);
    if (!socket.ok()) return socket.status();
    // The file's mode keeps others out: plain text, whatever the port has.
    ways.push_back(
        {{},
         Handovers(kHandovers, grpc::InsecureServerCredentials(), builder)});
    ways.back().listening.push_back(*std::move(socket));
  }
  const int64_t streams =
      open_calls.OfConnection(options.max_streams_per_connection);
  SetGrpcLimits(options, streams, MessageMemory(options), builder);
  builder.RegisterService(&service);
  builder.RegisterService(&key_values);
  builder.RegisterService(&inference);
  builder.RegisterService(&reflection_service);
  builder.RegisterService(&old_reflection_service);
  std::vector<
      std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>>
      interceptors;
  interceptors.push_back(other_calls.NewFactory());
  builder.experimental().SetInterceptorCreators(std::move(interceptors));
  grpc_server = builder.BuildAndStart();
  if (grpc_server == nullptr) {
    return absl::UnavailableError("gRPC could not start");
  }
  grpc_server->GetHealthCheckService()->SetServingStatus(
      v1::AttentionService::service_full_name(), true);
  grpc_server->GetHealthCheckService()->SetServingStatus(
      inference::GRPCInferenceService::service_full_name(), true);
  health->Attach(grpc_server->GetHealthCheckService());
  call_watch.emplace(channelz::SourceOf(channelz::NewestServer()), streams,
                     open_calls, connections, *ledger);
  acceptor.emplace(std::move(ways), connections);
  return tcp->port;
}

void Server::Impl::ServeHttp() {
  if (http == nullptr) return;
  if (options.http_inference) {
    http_inference = std::make_unique<InferenceApi>(
        InferenceApi::Parts{options, *engine, services(), calls, models,
                            regions, *resident, http->bodies, management,
                            other_calls, WhyNotInPlainText(options, *http)});
  }
  const auto ready = [this] { return !calls.leaving() && health->serving(); };
  http->api.StartServing({.ready = ready,
                          .metrics =
                              [this, ready] {
                                return MetricsPage(
                                    {options, *engine, ready(), metrics,
                                     other_calls, models, admission, queue,
                                     connections, open_calls, *ledger,
                                     *call_watch, *http->server, *resident});
                              },
                          .inference = http_inference.get()});
}

void Server::Impl::CloseConnections() {
  using std::chrono::steady_clock;
  // What comes meanwhile gets UNAVAILABLE. grpc::Server::Shutdown() says
  // CANCELLED to it, which callers do not try again elsewhere; so there must be
  // no connection any more when it is called.
  connections.WaitUntilNone(steady_clock::now() + kSettleTime);
  // While it listens: later the file may be another server's.
  if (!options.grpc_unix_socket.empty()) {
    ::unlink(options.grpc_unix_socket.c_str());
  }
  acceptor->Stop();
  connections.ShutDownAll(SHUT_RD);
  if (!connections.WaitUntilNone(steady_clock::now() + kFlushTime)) {
    connections.ShutDownAll(SHUT_RDWR);
    connections.WaitUntilNone(steady_clock::now() + kFlushTime);
  }
}

Server::Server() = default;

absl::StatusOr<std::unique_ptr<Server>> Server::Start(
    const ServerOptions& given, TestHooks hooks) {
  if (absl::Status status = CheckOptions(given); !status.ok()) return status;
  const int threads =
      WorkerPool::ThreadsFor(given.worker_threads) + kThreadsBesideWorkers;
  const ServerOptions options = WithMemoryLimit(given, threads);
  const int64_t descriptors = RaiseDescriptorLimit();
  const int64_t http_connections =
      options.http ? std::clamp<int64_t>(descriptors / kHttpShareOfDescriptors,
                                         1, kMostHttpConnections)
                   : 0;
  const absl::StatusOr<ConnectionLimits> connections =
      DecideConnectionLimits(options, descriptors - http_connections);
  if (!connections.ok()) return connections.status();
  // What else starts threads, oneTBB included, has less to say where there are
  // none.
  if (absl::Status room = CheckRoomToStart(threads); !room.ok()) return room;
  absl::StatusOr<std::unique_ptr<Tls>> tls = OpenTls(options);
  if (!tls.ok()) return tls.status();
  const auto ledger = std::make_shared<Ledger>();
  // First, so that who waits for the start is told of it.
  absl::StatusOr<std::unique_ptr<HttpPort>> http =
      OpenHttpPort(options, http_connections, tls->get(), ledger);
  if (!http.ok()) return http.status();
  const auto health = std::make_shared<BackendHealth>();
  absl::StatusOr<std::unique_ptr<Engine>> engine =
      CreateEngine(options, std::move(hooks), health);
  if (!engine.ok()) return engine.status();
  (*engine)->workers().StartThreads();
  BackendHealth::LogBackends(**engine);
  absl::StatusOr<std::unique_ptr<ModelRepository>> repository =
      OpenRepository(options);
  if (!repository.ok()) return repository.status();
  absl::StatusOr<std::unique_ptr<ResidentStore>> resident =
      ResidentStore::Open(options);
  if (!resident.ok()) return resident.status();
  absl::StatusOr<std::unique_ptr<Callers>> callers =
      OpenCallers(options.callers_file);
  if (!callers.ok()) return callers.status();
  grpc::EnableDefaultHealthCheckService(true);
  auto server = absl::WrapUnique(new Server());
  server->impl_ = std::make_unique<Impl>(
      options, *std::move(engine), *std::move(repository), *std::move(resident),
      health, *std::move(tls), *std::move(callers), *connections, ledger,
      *std::move(http));
  KeepFreedMemoryWithin(server->impl_->options.memory_limit);
  const absl::StatusOr<int> port = server->impl_->Listen();
  if (!port.ok()) return port.status();
  server->port_ = *port;
  server->address_ = HostAndPort(options.grpc_address, *port);
  if (server->impl_->http != nullptr) {
    server->http_address_ = server->impl_->http->address;
  }
  server->impl_->ServeHttp();
  return server;
}

Server::~Server() {
  if (impl_->acceptor) Drain();
}

std::string Server::Summary() const {
  const Engine& engine = *impl_->engine;
  std::string backends;
  for (const auto& backend : engine.backends()) {
    absl::StrAppend(&backends, backends.empty() ? "" : ", ", backend->name(),
                    " (", backend->instruction_set(), ")");
  }
  const int threads = engine.workers().threads();
  const std::string& socket = impl_->options.grpc_unix_socket;
  const bool tls = impl_->tls != nullptr;
  return absl::StrCat(
      "listening on ", address_, socket.empty() ? "" : " and unix:", socket,
      http_address_.empty() ? ""
      : tls                 ? ", https://"
                            : ", http://",
      http_address_, ", backend ", backends, ", ", threads,
      threads == 1 ? " worker thread" : " worker threads", ", memory limit ",
      impl_->options.memory_limit >> 20, " MiB, of sequences ",
      ResidentMemoryLimit(impl_->options) >> 20, " MiB");
}

void Server::ReadFilesAgain() {
  if (impl_->tls != nullptr) impl_->tls->ReadSoon();
  if (impl_->callers != nullptr) impl_->callers->ReadSoon();
  impl_->repository_queue.Add([this](const absl::Status& turn) {
    const absl::Status loaded = turn.ok() ? impl_->repository->LoadAll() : turn;
    if (loaded.ok()) return;
    spdlog::error("models stay as they were: {}",
                  static_cast<std::string>(loaded.message()));
  });
}

bool Server::Drain() {
  std::call_once(impl_->drained, [this] {
    Impl& impl = *impl_;
    impl.health->Attach(nullptr);
    impl.calls.StartLeaving();
    impl.grpc_server->GetHealthCheckService()->SetServingStatus(false);
    std::this_thread::sleep_for(impl.options.drain_delay);
    const auto deadline =
        std::chrono::steady_clock::now() + impl.options.drain_time;
    impl.admission.StartDraining();
    impl.calls.StartDrain();
    impl.repository_queue.StartDraining();
    impl.sequence_files.StartDraining();
    const bool files_done = impl.repository_queue.WaitUntilIdle(deadline) &&
                            impl.sequence_files.WaitUntilIdle(deadline);
    impl.drained_quietly = impl.calls.WaitUntilNone(deadline) && files_done;
    if (!impl.drained_quietly) {
      impl.calls.EndDrain();
      impl.calls.WaitUntilNone(std::chrono::steady_clock::now() + kFlushTime);
    }
    impl.CloseConnections();
    // Returns when every call is done: where a model is still loading, when it
    // is loaded.
    impl.grpc_server->Shutdown(std::chrono::system_clock::now() + kFlushTime);
  });
  return impl_->drained_quietly;
}

}  // namespace attention::server
