#include "server/transport/unix_socket.h"

#include <sys/socket.h>
#include <sys/stat.h>
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

FileDescriptor NewSocket() {
  return FileDescriptor(
      ::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

sockaddr_un AddressOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::copy(path.begin(), path.end(), address.sun_path);
  return address;
}

// The error that connecting to `path` ends with, 0 for none.
int Connect(const std::string& path) {
  const FileDescriptor socket = NewSocket();
  if (!socket.ok()) return errno;
  const sockaddr_un address = AddressOf(path);
  const auto* any = reinterpret_cast<const sockaddr*>(&address);
  return ::connect(socket.get(), any, sizeof(address)) == 0 ? 0 : errno;
}

// While it lives, the files that this process creates are its user's alone:
// mode 0600 for a socket, so that nobody else can connect from the moment it
// is there. For the whole process, so keep it short.
class OwnerOnlyFiles {
 public:
  OwnerOnlyFiles() : previous_(::umask(0177)) {}
  ~OwnerOnlyFiles() { ::umask(previous_); }
  OwnerOnlyFiles(const OwnerOnlyFiles&) = delete;
  OwnerOnlyFiles& operator=(const OwnerOnlyFiles&) = delete;

 private:
  const mode_t previous_;
};

// Removes what a server left behind which ended without removing it. OK where
// there is nothing any more.
absl::Status MakeRoom(const std::string& path) {
  struct stat file {};
  if (::lstat(path.c_str(), &file) != 0) {
    if (errno == ENOENT) return absl::OkStatus();
    return absl::InvalidArgumentError(Message(path, ErrorText(errno)));
  }
  if (!S_ISSOCK(file.st_mode)) {
    return absl::InvalidArgumentError(
        Message(path, "a file is there that is no socket"));
  }
  const int error = Connect(path);
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

absl::StatusOr<FileDescriptor> ListenOnUnixSocket(const std::string& path) {
  if (absl::Status room = MakeRoom(path); !room.ok()) return room;
  FileDescriptor socket = NewSocket();
  const sockaddr_un address = AddressOf(path);
  const auto* any = reinterpret_cast<const sockaddr*>(&address);
  const OwnerOnlyFiles owner_only;
  if (!socket.ok() || ::bind(socket.get(), any, sizeof(address)) != 0 ||
      ::listen(socket.get(), SOMAXCONN) != 0) {
    return absl::UnavailableError(Message(path, ErrorText(errno)));
  }
  return socket;
}

}  // namespace attention::server
