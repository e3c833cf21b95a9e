#include "server/transport/acceptor.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <cerrno>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"

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

// What follows on the address in the log.
std::string WhyRefused(Connections::Answer answer,
                       const ConnectionLimits& limits) {
  using Answer = Connections::Answer;
  switch (answer) {
    case Answer::kTaken:
      break;
    case Answer::kPeerFull:
      return absl::StrCat(", which has ", limits.per_peer,
                          " open (at most --max-connections-per-peer)");
    case Answer::kPeerCalls:
      return ", which has too many open calls";
    case Answer::kFull:
      return absl::StrCat(": ", limits.total,
                          " are open (at most --max-connections)");
    case Answer::kFailed:
      return ": no file descriptor is left";
  }
  return "";
}

}  // namespace

// gRPC 1.51 reads what a new connection has sent already within the call that
// gives it the socket, and with a lock held: who floods it keeps that call
// busy. So there are several, each with a thread while it runs.
class Acceptor::Handovers {
 public:
  explicit Handovers(std::vector<Serve> serve) : serve_(std::move(serve)) {
    for (const Serve& each : serve_) free_.push_back(&each);
  }

  // Waits until one is free, or Stop(): then the socket is shut down. Where no
  // thread can be made, this one hands the
  // socket over: better that others wait for a flood than that nobody is
  // served. Returns why none could be made.
  static std::error_code Begin(const std::shared_ptr<Handovers>& handovers,
                               FileDescriptor socket) {
    const Serve* const serve = handovers->Take();
    if (serve == nullptr) {
      ::shutdown(socket.get(), SHUT_RDWR);
      return {};
    }
    const auto shared = std::make_shared<FileDescriptor>(std::move(socket));
    const auto hand_over = [handovers, serve, shared] {
      (*serve)(shared->Release());
      handovers->Return(serve);
    };
    try {
      std::thread(hand_over).detach();
      return {};
    } catch (const std::system_error& error) {
      hand_over();
      return error.code();
    }
  }

  // Nothing more is handed over. Who floods a connection could otherwise hold
  // up the acceptor's end for as long as he likes.
  void Stop() {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    returned_.notify_all();
  }

 private:
  const Serve* Take() {
    std::unique_lock lock(mutex_);
    returned_.wait(lock, [this] { return stopped_ || !free_.empty(); });
    if (stopped_) return nullptr;
    const Serve* const serve = free_.back();
    free_.pop_back();
    return serve;
  }
  void Return(const Serve* serve) {
    const std::lock_guard lock(mutex_);
    free_.push_back(serve);
    returned_.notify_one();
  }

  const std::vector<Serve> serve_;
  std::mutex mutex_;
  std::condition_variable returned_;
  bool stopped_ = false;
  std::vector<const Serve*> free_;
};

Acceptor::Acceptor(std::vector<Way> ways, Connections& connections)
    : listening_(Spread(std::move(ways))),
      connections_(connections),
      stop_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      thread_([this] { Run(); }) {}

std::vector<Acceptor::Listening> Acceptor::Spread(std::vector<Way> ways) {
  std::vector<Listening> listening;
  for (Way& way : ways) {
    const auto handovers = std::make_shared<Handovers>(std::move(way.serve));
    for (FileDescriptor& socket : way.listening) {
      listening.push_back({std::move(socket), handovers});
    }
  }
  return listening;
}

void Acceptor::Stop() {
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  (void)!::write(stop_.get(), &one, sizeof(one));
  for (const Listening& each : listening_) each.handovers->Stop();
  thread_.join();
  listening_.clear();
}

void Acceptor::Run() {
  std::vector<pollfd> watched = {{stop_.get(), POLLIN, 0},
                                 {connections_.epoll(), POLLIN, 0}};
  const size_t others = watched.size();
  for (const Listening& each : listening_) {
    watched.push_back({each.socket.get(), POLLIN, 0});
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
      if (!AcceptAll(listening_[i - others])) pausing = true;
    }
  }
}

bool Acceptor::AcceptAll(const Listening& listening) {
  for (int i = 0; i < kMostInARow; ++i) {
    FileDescriptor socket(::accept4(listening.socket.get(), nullptr, nullptr,
                                    SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.ok()) {
      Admit(std::move(socket), listening.handovers);
      continue;
    }
    if (errno == EAGAIN) return true;
    if (IsOfTheConnection(errno)) continue;
    const int error = errno;
    if (const int64_t times = failed_.Count(); times > 0) {
      spdlog::warn(absl::StrCat(
          "cannot accept connections: ", std::generic_category().message(error),
          " (", times, " times)"));
    }
    return false;
  }
  return true;
}

void Acceptor::Admit(FileDescriptor socket,
                     const std::shared_ptr<Handovers>& handovers) {
  // Of a storm of those that connect and close, few get as far as gRPC.
  if (HasLeft(socket.get())) return;
  using Answer = Connections::Answer;
  const Answer answer = connections_.Add(socket.get());
  if (answer == Answer::kTaken) {
    // As gRPC does for those that it accepts itself; fails for a Unix-domain
    // socket, which needs none.
    const int on = 1;
    ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    HandOver(std::move(socket), handovers);
    return;
  }
  const int64_t times = refused_.Count();
  if (times == 0) return;
  const ConnectionLimits& limits = connections_.limits();
  const std::optional<Peer> peer = PeerOfSocket(socket.get());
  const std::string from = peer ? peer->address : "an unknown address";
  spdlog::warn(absl::StrCat("closed ", times,
                            " new connections, the last from ", from,
                            WhyRefused(answer, limits)));
}

void Acceptor::HandOver(FileDescriptor socket,
                        const std::shared_ptr<Handovers>& handovers) {
  const std::error_code error = Handovers::Begin(handovers, std::move(socket));
  if (!error) return;
  if (const int64_t times = failed_.Count(); times > 0) {
    spdlog::warn(absl::StrCat("new connections get no thread: ",
                              error.message(), " (", times, " times)"));
  }
}

}  // namespace attention::server
