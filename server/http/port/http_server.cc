#include "server/http/port/http_server.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <exception>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "server/http/port/http_acceptor.h"
#include "server/http/port/http_connections.h"
#include "server/http/port/http_greeting.h"
#include "server/http/port/http_session.h"
#include "server/telemetry/log_limit.h"
#include "server/transport/peer.h"

namespace attention::server {
namespace {

using boost::asio::ip::tcp;
using Error = boost::system::error_code;

// Connections, before those that are open get on: few turns for who connects in
// a storm, and fewer than there are places for probes, so that a probe among
// them finds one.
int64_t AcceptedAtOnce(const HttpLimits& limits) {
  return std::clamp<int64_t>(limits.reserved_connections / 2, 1, 32);
}

// As gRPC says it, an IPv4 address within an IPv6 one as what it is.
std::string NameOf(const tcp::endpoint& peer) {
  const auto address = peer.address();
  if (address.is_v6() && address.to_v6().is_v4_mapped()) {
    const auto v4 = boost::asio::ip::make_address_v4(boost::asio::ip::v4_mapped,
                                                     address.to_v6());
    return absl::StrCat("ipv4:", v4.to_string(), ":", peer.port());
  }
  if (address.is_v4()) {
    return absl::StrCat("ipv4:", address.to_string(), ":", peer.port());
  }
  return absl::StrCat("ipv6:[", address.to_string(), "]:", peer.port());
}

}  // namespace

class HttpServer::Impl {
 public:
  Impl(TcpListener listener, const HttpLimits& limits, HttpHandlers handlers,
       std::function<TlsContext()> tls)
      : limits_(limits),
        handlers_(std::move(handlers)),
        tls_(std::move(tls)),
        connections_(*limits_.ledger, limits.connections,
                     limits.reserved_connections),
        greetings_{
            limits_,
            handlers_,
            *limits_.ledger,
            tls_ == nullptr ? nullptr : std::make_shared<HandshakeTurns>(),
            {}} {
    for (FileDescriptor& socket : listener.sockets) {
      acceptors_.push_back(std::make_unique<HttpAcceptor>(
          context_, std::move(socket), AcceptedAtOnce(limits_),
          [this](tcp::socket accepted) { return Admit(std::move(accepted)); },
          failed_));
      acceptors_.back()->Accept();
    }
    thread_ = std::thread([this] { Run(); });
  }
  ~Impl() { Stop(); }

  void Stop() {
    context_.stop();
    if (thread_.joinable()) thread_.join();
    // What it still has refers to the context.
    if (greetings_.turns != nullptr) greetings_.turns->Stop();
  }

  HttpConnections& connections() { return connections_; }

 private:
  // What one connection has no memory for ends that connection.
  void Run() {
    while (!context_.stopped()) {
      try {
        context_.run();
      } catch (const std::exception& error) {
        if (const int64_t times = failed_.Count(); times > 0) {
          spdlog::warn(
              absl::StrCat("http: ", error.what(), " (", times, " times)"));
        }
      }
    }
  }

  // False where it is closed at once.
  bool Admit(tcp::socket socket) {
    Error error;
    const auto peer = socket.remote_endpoint(error);
    if (error) return false;  // it has gone already
    HttpPeer caller{.address = {}, .name = NameOf(peer)};
    if (const auto of = PeerOfCall(caller.name)) caller.address = of->address;
    auto place = connections_.Take(caller.address);
    if (place == nullptr) {
      if (const int64_t times = refused_.Count(); times > 0) {
        spdlog::warn(absl::StrCat(
            "http: closed ", times, " new connections, the last from ",
            caller.address, ": ", connections_.open(),
            " are open and none is idle (at most ", limits_.connections.total,
            ", ", limits_.connections.per_peer, " of one address, and ",
            limits_.reserved_connections, " for probes)"));
      }
      return false;
    }
    socket.set_option(tcp::no_delay(true), error);
    // A caller that vanished is found out, also where nothing is sent.
    socket.set_option(boost::asio::socket_base::keep_alive(true), error);
    if (tls_ != nullptr) {
      std::make_shared<HttpGreeting>(std::move(socket), std::move(place),
                                     std::move(caller), tls_(), greetings_)
          ->Begin();
      return true;
    }
    std::make_shared<HttpSession>(HttpStream(std::move(socket)),
                                  std::move(place), std::move(caller), limits_,
                                  handlers_)
        ->Read();
    return true;
  }

  const HttpLimits limits_;
  const HttpHandlers handlers_;
  const std::function<TlsContext()> tls_;  // null: plain text alone
  LogLimit refused_;
  LogLimit failed_;
  HttpConnections connections_;
  HttpGreeting::Shared greetings_;
  // Destroys the sessions, which its operations keep.
  boost::asio::io_context context_{1};
  std::vector<std::unique_ptr<HttpAcceptor>> acceptors_;
  std::thread thread_;
};

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(
    TcpListener listener, const HttpLimits& limits, HttpHandlers handlers,
    std::function<TlsContext()> tls) {
  try {
    return absl::WrapUnique(new HttpServer(std::make_unique<Impl>(
        std::move(listener), limits, std::move(handlers), std::move(tls))));
  } catch (const std::exception& error) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot serve HTTP: ", error.what()));
  }
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() = default;

bool HttpServer::Drain(std::chrono::steady_clock::time_point deadline) {
  impl_->connections().StartDraining();
  return impl_->connections().WaitUntilIdle(deadline);
}

bool HttpServer::WaitUntilNone(std::chrono::steady_clock::time_point deadline) {
  return impl_->connections().WaitUntilNone(deadline);
}

void HttpServer::Stop() { impl_->Stop(); }

int64_t HttpServer::connections() const { return impl_->connections().open(); }
int64_t HttpServer::connections_refused() const {
  return impl_->connections().refused();
}
int64_t HttpServer::connections_displaced() const {
  return impl_->connections().displaced();
}

}  // namespace attention::server
