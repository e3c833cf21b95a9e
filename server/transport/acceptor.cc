#include "server/transport/acceptor.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdint>
#include <system_error>
#include <utility>

namespace attention::server {
namespace {

// Between two attempts where nothing more can be opened.
constexpr int kPauseMs = 50;
// From one listening socket before the others have their turn.
constexpr int kMostInARow = 64;

// What accept() says of a connection that has ended by then, and not of this
// process.
bool IsOfTheConnection(int error) {
  switch (error) {
    case EMFILE:
    case ENFILE:
    case ENOBUFS:
    case ENOMEM:
      return false;
    default:
      return true;
  }
}

}  // namespace

Acceptor::Acceptor(std::vector<FileDescriptor> listening,
                   Connections& connections,
                   std::function<void(int socket)> serve)
    : listening_(std::move(listening)),
      connections_(connections),
      serve_(std::move(serve)),
      stop_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      thread_([this] { Run(); }) {}

void Acceptor::Stop() {
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  (void)!::write(stop_.get(), &one, sizeof(one));
  thread_.join();
  listening_.clear();
}

void Acceptor::Run() {
  std::vector<pollfd> watched = {{stop_.get(), POLLIN, 0},
                                 {connections_.epoll(), POLLIN, 0}};
  const size_t others = watched.size();
  for (const FileDescriptor& socket : listening_) {
    watched.push_back({socket.get(), POLLIN, 0});
  }
  bool pausing = false;  // nothing more can be opened for now
  while (true) {
    const size_t count = pausing ? others : watched.size();
    ::poll(watched.data(), count, pausing ? kPauseMs : -1);
    if (watched[0].revents != 0) return;
    pausing = false;
    connections_.Collect();
    for (size_t i = others; i < count; ++i) {
      if (watched[i].revents == 0) continue;
      if (!AcceptAll(watched[i].fd)) pausing = true;
    }
  }
}

bool Acceptor::AcceptAll(int listening) {
  for (int i = 0; i < kMostInARow; ++i) {
    FileDescriptor socket(
        ::accept4(listening, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.ok()) {
      Admit(std::move(socket));
      continue;
    }
    if (errno == EAGAIN) return true;
    if (IsOfTheConnection(errno)) continue;
    const int error = errno;
    if (const int64_t times = failed_.Count(); times > 0) {
      spdlog::warn("cannot accept connections: {} ({} times)",
                   std::generic_category().message(error), times);
    }
    return false;
  }
  return true;
}

void Acceptor::Admit(FileDescriptor socket) {
  using Answer = Connections::Answer;
  const Answer answer = connections_.Add(socket.get());
  if (answer == Answer::kTaken) {
    // As gRPC does for those that it accepts itself; fails for a Unix-domain
    // socket, which needs none.
    const int on = 1;
    ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    serve_(socket.Release());
    return;
  }
  const int64_t times = refused_.Count();
  if (times == 0) return;
  const ConnectionLimits& limits = connections_.limits();
  const std::optional<Peer> peer = PeerOfSocket(socket.get());
  const std::string from = peer ? peer->address : "the Unix-domain socket";
  if (answer == Answer::kPeerFull) {
    spdlog::warn(
        "closed {} new connections, the last from {}, which has {} "
        "open (at most --max-connections-per-peer)",
        times, from, limits.per_peer);
  } else if (answer == Answer::kFull) {
    spdlog::warn(
        "closed {} new connections, the last from {}: {} are open (at "
        "most --max-connections)",
        times, from, limits.total);
  } else {
    spdlog::warn(
        "closed {} new connections, the last from {}: no file "
        "descriptor is left",
        times, from);
  }
}

}  // namespace attention::server
