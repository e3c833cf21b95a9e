#ifndef ATTENTION_SERVER_BASE_FILE_DESCRIPTOR_H_
#define ATTENTION_SERVER_BASE_FILE_DESCRIPTOR_H_

#include <unistd.h>

#include <utility>

namespace attention::server {

/// An open file descriptor, closed at its end; -1 where there is none.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.Release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    if (this != &other) {
      Close();
      fd_ = other.Release();
    }
    return *this;
  }
  ~FileDescriptor() { Close(); }

  bool ok() const { return fd_ >= 0; }
  int get() const { return fd_; }
  /// Gives it away: who gets it closes it.
  int Release() { return std::exchange(fd_, -1); }

 private:
  void Close() {
    if (fd_ >= 0) ::close(fd_);
  }

  int fd_ = -1;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_BASE_FILE_DESCRIPTOR_H_
