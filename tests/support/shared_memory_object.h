#ifndef ATTENTION_TESTS_SUPPORT_SHARED_MEMORY_OBJECT_H_
#define ATTENTION_TESTS_SUPPORT_SHARED_MEMORY_OBJECT_H_

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

namespace attention::test {

/// A POSIX shared-memory object as a caller of the server has it: mapped here,
/// under a key that no other test uses, and gone at the end.
class SharedMemoryObject {
 public:
  /// Zero-filled.
  explicit SharedMemoryObject(size_t size) : size_(size) {
    static int count = 0;
    key_ = "/attention_test_" + std::to_string(getpid()) + "_" +
           std::to_string(count++);
    descriptor_ = shm_open(key_.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
    EXPECT_GE(descriptor_, 0) << key_ << ": " << std::strerror(errno);
    Truncate(size);
    bytes_ = static_cast<std::byte*>(mmap(nullptr, size, PROT_READ | PROT_WRITE,
                                          MAP_SHARED, descriptor_, 0));
    EXPECT_NE(bytes_, MAP_FAILED) << std::strerror(errno);
  }
  ~SharedMemoryObject() {
    munmap(bytes_, size_);
    close(descriptor_);
    shm_unlink(key_.c_str());
  }
  SharedMemoryObject(const SharedMemoryObject&) = delete;
  SharedMemoryObject& operator=(const SharedMemoryObject&) = delete;

  const std::string& key() const { return key_; }
  std::byte* bytes() { return bytes_; }

  /// Takes away what lies beyond `size` bytes, under everybody who maps it.
  void Truncate(size_t size) {
    EXPECT_EQ(ftruncate(descriptor_, static_cast<off_t>(size)), 0);
  }

  /// Holds the exclusive lock by which an owner says that he lives, or lets it
  /// go.
  void Lock() { EXPECT_EQ(flock(descriptor_, LOCK_EX | LOCK_NB), 0); }
  void Unlock() { EXPECT_EQ(flock(descriptor_, LOCK_UN), 0); }

  static size_t PageSize() {
    return static_cast<size_t>(sysconf(_SC_PAGESIZE));
  }

 private:
  std::string key_;
  size_t size_;
  int descriptor_ = -1;
  std::byte* bytes_ = nullptr;
};

}  // namespace attention::test

#endif  // ATTENTION_TESTS_SUPPORT_SHARED_MEMORY_OBJECT_H_
