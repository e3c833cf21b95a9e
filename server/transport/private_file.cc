#include "server/transport/private_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"

namespace attention::server {
namespace {

absl::Status Failed(const char* what) {
  return absl::ResourceExhaustedError(
      absl::StrCat("a file in memory: ", what, ": ",
                   std::generic_category().message(errno)));
}

}  // namespace

absl::Status PrivateFile::Replace(const std::string& content) {
  FileDescriptor next(::memfd_create("attention", MFD_CLOEXEC));
  if (!next.ok()) return Failed("memfd_create");
  if (::write(next.get(), content.data(), content.size()) !=
      static_cast<ssize_t>(content.size())) {
    return Failed("write");
  }
  // gRPC looks at the seconds alone, and two contents may come in one.
  const timespec time{++replaced_, 0};
  const std::array<timespec, 2> times{time, time};
  if (::futimens(next.get(), times.data()) != 0) return Failed("futimens");
  if (!file_.ok()) {
    file_ = std::move(next);
  } else if (::dup3(next.get(), file_.get(), O_CLOEXEC) < 0) {
    return Failed("dup3");
  }
  return absl::OkStatus();
}

std::string PrivateFile::path() const {
  return absl::StrCat("/proc/self/fd/", file_.get());
}

}  // namespace attention::server
