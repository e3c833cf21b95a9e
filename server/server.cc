#include "server/server.h"

#include <grpc/grpc.h>
#include <grpcpp/health_check_service_interface.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "core/worker_pool.h"
#include "server/base/out_of_memory.h"
#include "server/base/room_to_start.h"
#include "server/memory/allocator.h"
#include "server/options/option_checks.h"
#include "server/server_impl.h"
#include "server/server_parts.h"

namespace attention::server {
namespace {

// Of gRPC, with some that it makes under load.
constexpr int kThreadsBesideWorkers = 18;

// Over HTTP; where file descriptors are few, that many of them at most.
constexpr int64_t kMostHttpConnections = 1024;
constexpr int64_t kHttpShareOfDescriptors = 8;

}  // namespace

Server::Server() = default;

absl::StatusOr<std::unique_ptr<Server>> Server::Start(
    const ServerOptions& given, TestHooks hooks) {
  // For ever: what ends gRPC 1.51 waits for up to 10 s where a socket was full,
  // long after the last connection has gone.
  [[maybe_unused]] static const bool kept = (grpc_init(), true);
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
  if (absl::Status room = CheckRoomToStart("the server", threads); !room.ok()) {
    return room;
  }
  absl::StatusOr<std::unique_ptr<Tls>> tls = OpenTls(options);
  if (!tls.ok()) return tls.status();
  const auto ledger = std::make_shared<Ledger>();
  // First, so that who waits for the start is told of it.
  absl::StatusOr<std::unique_ptr<HttpPort>> http =
      OpenHttpPort(options, http_connections, tls->get(), ledger);
  if (!http.ok()) return http.status();
  const auto health =
      hooks.health ? hooks.health : std::make_shared<BackendHealth>();
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
  // One that waits for its turn reads what this one would.
  if (impl_->reads_files_again.exchange(true)) return;
  const auto load = [this](const absl::Status& turn) {
    impl_->reads_files_again = false;
    const absl::Status loaded =
        turn.ok()
            ? WithoutBadAlloc([this] { return impl_->repository->LoadAll(); })
            : turn;
    if (loaded.ok()) return;
    IfMemoryAllows([&] {
      spdlog::error(
          absl::StrCat("models stay as they were: ", loaded.message()));
    });
  };
  // Nobody tries again on behalf of whoever runs the server.
  impl_->repository_queue.Add(load, SerialQueue::Places::kUnbounded);
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
    // A request that is arriving is not yet a call.
    const bool http_done =
        impl.http == nullptr || impl.http->server->Drain(deadline);
    const bool files_done = impl.repository_queue.WaitUntilIdle(deadline) &&
                            impl.sequence_files.WaitUntilIdle(deadline);
    impl.drained_quietly =
        impl.calls.WaitUntilNone(deadline) && files_done && http_done;
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
