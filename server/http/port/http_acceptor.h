#ifndef ATTENTION_SERVER_HTTP_PORT_HTTP_ACCEPTOR_H_
#define ATTENTION_SERVER_HTTP_PORT_HTTP_ACCEPTOR_H_

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <string>

#include "server/base/file_descriptor.h"
#include "server/telemetry/log_limit.h"

namespace attention::server {

/// Accepts the connections of one listening socket, some at a time, so that
/// those that are open have their turns in a storm of new ones. On the thread
/// of its context.
class HttpAcceptor {
 public:
  /// False where the connection is closed at once.
  using Admit = std::function<bool(boost::asio::ip::tcp::socket)>;

  /// `admit` gets each connection whose caller is still there. At most
  /// `most_at_once` >= 1 of those that it keeps are accepted before those that
  /// are open get on; what it throws ends that one, and the next are accepted a
  /// moment later. `failed` and the context outlive it.
  HttpAcceptor(boost::asio::io_context& context, FileDescriptor socket,
               int64_t most_at_once, Admit admit, LogLimit& failed);

  void Accept();

 private:
  using Error = boost::system::error_code;

  void AcceptSome();
  enum class Accepted : uint8_t { kNone, kLeft, kKept };
  // kNone where none waits any more. Throws where nothing more can be opened.
  Accepted AcceptOne();
  void AcceptLater(const std::string& why);

  boost::asio::ip::tcp::acceptor listening_;
  boost::asio::steady_timer pause_;
  const int64_t most_at_once_;
  const Admit admit_;
  LogLimit& failed_;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_HTTP_PORT_HTTP_ACCEPTOR_H_
