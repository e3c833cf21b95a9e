#include "server/http/port/http_acceptor.h"

#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <boost/system/system_error.hpp>
#include <chrono>
#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/transport/peer.h"

namespace attention::server {
namespace {

using boost::asio::ip::tcp;

// Between two attempts where nothing more can be opened.
constexpr std::chrono::milliseconds kAcceptPause{50};

// Some 10 us each: those that are open get on in between.
constexpr int kMostInARow = 512;

tcp ProtocolOf(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size);
  return address.ss_family == AF_INET6 ? tcp::v6() : tcp::v4();
}

}  // namespace

HttpAcceptor::HttpAcceptor(boost::asio::io_context& context,
                           FileDescriptor socket, int64_t most_at_once,
                           Admit admit, LogLimit& failed)
    : listening_(context, ProtocolOf(socket.get()), socket.get()),
      pause_(context),
      most_at_once_(most_at_once),
      admit_(std::move(admit)),
      failed_(failed) {
  (void)socket.Release();  // the acceptor's
  listening_.non_blocking(true);
}

void HttpAcceptor::Accept() {
  listening_.async_wait(tcp::acceptor::wait_read, [this](const Error& error) {
    if (!error) AcceptSome();
  });
}

void HttpAcceptor::AcceptSome() {
  try {
    int64_t kept = 0;
    for (int i = 0; i < kMostInARow && kept < most_at_once_; ++i) {
      const Accepted accepted = AcceptOne();
      if (accepted == Accepted::kNone) break;
      if (accepted == Accepted::kKept) ++kept;
    }
  } catch (const std::exception& error) {
    return AcceptLater(error.what());
  }
  Accept();
}

HttpAcceptor::Accepted HttpAcceptor::AcceptOne() {
  Error error;
  tcp::socket socket = listening_.accept(error);
  if (error == boost::asio::error::would_block) return Accepted::kNone;
  if (error == boost::asio::error::connection_aborted) return Accepted::kLeft;
  if (error) throw boost::system::system_error(error);
  // Who connects and closes in a storm keeps no place, and no probe behind it.
  if (HasLeft(socket.native_handle())) return Accepted::kLeft;
  return admit_(std::move(socket)) ? Accepted::kKept : Accepted::kLeft;
}

void HttpAcceptor::AcceptLater(const std::string& why) {
  if (const int64_t times = failed_.Count(); times > 0) {
    spdlog::warn(absl::StrCat("http: cannot accept connections: ", why, " (",
                              times, " times)"));
  }
  pause_.expires_after(kAcceptPause);
  pause_.async_wait([this](const Error& error) {
    if (!error) Accept();
  });
}

}  // namespace attention::server
