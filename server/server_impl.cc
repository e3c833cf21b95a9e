#include "server/server_impl.h"

#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "server/http/metrics_page.h"
#include "server/scheduling/retry_after.h"
#include "server/server_parts.h"
#include "server/transport/channelz.h"
#include "server/transport/grpc_handovers.h"
#include "server/transport/grpc_limits.h"
#include "server/transport/tcp_listener.h"
#include "server/transport/unix_socket.h"

namespace attention::server {
namespace {

// Sockets of one kind that are given to gRPC at once.
constexpr int kHandovers = 16;

// Between the last answer and the end of connections: replies of calls that are
// not counted are handed to gRPC, and not yet sent; and requests over HTTP that
// were sent are not yet read.
constexpr std::chrono::milliseconds kSettleTime{200};

// What messages on their way may take in gRPC, and over HTTP: half of all.
int64_t MessageMemory(const ServerOptions& options) {
  return options.memory_limit / 2 - BodyMemory(options);
}

// What reflection lists, and metrics tell apart.
std::vector<std::string> ServiceNames() {
  return {v1::AttentionService::service_full_name(),
          v1::KeyValueService::service_full_name(),
          v1::ShardService::service_full_name(),
          inference::GRPCInferenceService::service_full_name(),
          "grpc.health.v1.Health",
          grpc::reflection::v1::ServerReflection::service_full_name(),
          grpc::reflection::v1alpha::ServerReflection::service_full_name()};
}

}  // namespace

Server::Impl::Impl(ServerOptions server_options,
                   std::unique_ptr<Engine> built_engine,
                   std::unique_ptr<ModelRepository> opened_repository,
                   std::unique_ptr<ResidentStore> resident_store,
                   std::shared_ptr<BackendHealth> backend_health,
                   std::unique_ptr<Tls> encryption,
                   std::unique_ptr<Callers> known_callers,
                   const ConnectionLimits& connection_limits,
                   std::shared_ptr<Ledger> counts,
                   std::unique_ptr<HttpPort> http_port)
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
      key_values(options, services(), calls, *resident, sequence_files),
      peers(options, tls ? tls->PeerCredentials() : nullptr),
      shards({options, *engine, calls, *repository, *resident, peers},
             services()),
      management(options, *engine, *repository, repository_queue, models,
                 regions),
      inference(options, *engine, services(), calls, management, models,
                regions, *resident, [this] { return IsReady(); }),
      reflection(ServiceNames(), calls) {
  OutOfMemoryForNow().IgnoreError();  // made while there is memory for it
  if (callers != nullptr) {
    callers->OnChange([this] { calls.TellCallersChanged(); });
  }
}

Server::Impl::~Impl() {
  if (callers != nullptr) callers->OnChange(nullptr);
  // Whoever asked over HTTP waits for a model that is still loading.
  repository_queue.Stop();
  sequence_files.Stop();
  // Its replies are still taken while tasks end.
  if (http != nullptr) http->Stop();
}

TaskServices Server::Impl::services() {
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
  builder.RegisterService(&shards);
  builder.RegisterService(&inference);
  builder.RegisterService(&reflection_service);
  builder.RegisterService(&old_reflection_service);
  std::vector<
      std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>>
      interceptors;
  interceptors.push_back(other_calls.NewFactory(ServiceNames()));
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

bool Server::Impl::IsReady() const {
  return !calls.leaving() && health->serving();
}

void Server::Impl::ServeHttp() {
  if (http == nullptr) return;
  if (options.http_inference) {
    http_inference = std::make_unique<InferenceApi>(
        InferenceApi::Parts{options, *engine, services(), calls, models,
                            regions, *resident, http->bodies, management,
                            other_calls, WhyNotInPlainText(options, *http)});
  }
  http->api.StartServing({.ready = [this] { return IsReady(); },
                          .metrics =
                              [this] {
                                return MetricsPage(
                                    {options, *engine, IsReady(), metrics,
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
  const auto settled = steady_clock::now() + kSettleTime;
  connections.WaitUntilNone(settled);
  if (http != nullptr) http->server->WaitUntilNone(settled);
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

}  // namespace attention::server
