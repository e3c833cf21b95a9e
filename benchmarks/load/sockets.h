#ifndef ATTENTION_BENCHMARKS_LOAD_SOCKETS_H_
#define ATTENTION_BENCHMARKS_LOAD_SOCKETS_H_

#include <cstddef>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace attention::bench {

/// A stream socket that closes itself.
class Socket {
 public:
  explicit Socket(int fd = -1) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket();

  /// "tcp:127.0.0.1:PORT" (no delay) or "unix:PATH".
  static absl::StatusOr<Socket> ConnectTo(const std::string& address);
  /// Likewise; port 0 takes a free one.
  static absl::StatusOr<Socket> ListenOn(const std::string& address);

  /// "tcp:127.0.0.1:PORT" of a socket that listens on one.
  std::string TcpAddress() const;
  /// The next connection; not valid when there is none any more.
  Socket Accept() const;
  bool valid() const { return fd_ >= 0; }

  /// All bytes, or false where the other side has gone.
  bool Send(absl::Span<const std::byte> bytes) const;
  bool Receive(absl::Span<std::byte> bytes) const;

 private:
  int fd_;
};

}  // namespace attention::bench

#endif  // ATTENTION_BENCHMARKS_LOAD_SOCKETS_H_
