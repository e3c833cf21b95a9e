#include "server/unix_socket.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace attention::server {
namespace {

static_assert(kMostSocketPathBytes + 1 == sizeof(sockaddr_un::sun_path));

std::string Message(const std::string& path, absl::string_view what) {
  return absl::StrCat("cannot listen on unix:", path, ": ", what);
}

std::string ErrorText(int error) {
  return std::generic_category().message(error);
}

// A stream socket that is closed at the end.
class Socket {
 public:
  Socket() : fd_(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0)) {}
  ~Socket() {
    if (fd_ >= 0) ::close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  // The error that connecting to `path` or binding it ends with, 0 for none.
  int Connect(const std::string& path) const { return Call(&::connect, path); }
  int Bind(const std::string& path) const { return Call(&::bind, path); }

 private:
  template <typename Function>
  int Call(Function* function, const std::string& path) const {
    if (fd_ < 0) return errno;
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::copy(path.begin(), path.end(), address.sun_path);
    const auto* any = reinterpret_cast<const sockaddr*>(&address);
    return function(fd_, any, sizeof(address)) == 0 ? 0 : errno;
  }

  const int fd_;
};

}  // namespace

std::string SocketTarget(const std::string& path) {
  std::string target = "unix:";
  for (const char c : path) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
        absl::StrContains("/-._~", absl::string_view(&c, 1))) {
      target.push_back(c);
    } else {
      absl::StrAppendFormat(&target, "%%%02X", static_cast<unsigned char>(c));
    }
  }
  return target;
}

absl::Status MakeRoomForSocket(const std::string& path) {
  struct stat file {};
  if (::lstat(path.c_str(), &file) != 0) {
    if (errno == ENOENT) return absl::OkStatus();
    return absl::InvalidArgumentError(Message(path, ErrorText(errno)));
  }
  if (!S_ISSOCK(file.st_mode)) {
    return absl::InvalidArgumentError(
        Message(path, "a file is there that is no socket"));
  }
  const int error = Socket().Connect(path);
  if (error == ECONNREFUSED) {
    // Nobody listens any more.
    if (::unlink(path.c_str()) == 0 || errno == ENOENT) return absl::OkStatus();
    return absl::InvalidArgumentError(
        Message(path, absl::StrCat("a socket without a server is there and "
                                   "cannot be removed: ",
                                   ErrorText(errno))));
  }
  // EAGAIN: its queue of connections is full. EPROTOTYPE: it is of another
  // kind.
  if (error == 0 || error == EAGAIN || error == EPROTOTYPE) {
    return absl::UnavailableError(
        Message(path, "another program listens there"));
  }
  return absl::InvalidArgumentError(Message(path, ErrorText(error)));
}

absl::Status WhyNoSocket(const std::string& path) {
  const int error = Socket().Bind(path);
  if (error == 0) ::unlink(path.c_str());
  return absl::UnavailableError(Message(
      path, error == 0 ? "the socket could not be made" : ErrorText(error)));
}

}  // namespace attention::server
