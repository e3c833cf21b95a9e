#ifndef ATTENTION_SERVER_HTTP_PORT_COUNTED_BYTES_H_
#define ATTENTION_SERVER_HTTP_PORT_COUNTED_BYTES_H_

#include <grpcpp/support/slice.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace attention::server {

/// Bounds the memory that HTTP requests take before they are admitted: all of
/// them; those of one address, three quarters at most; and each by what it
/// leaves to the others of its address, half as much as it has itself at least.
/// So one alone has half of all, and however many are unfinished, there is room
/// for another that is smaller. May be used from several threads at once.
class ByteBudget {
 public:
  /// `limit` >= 0.
  explicit ByteBudget(int64_t limit) : limit_(limit) {}

  /// `bytes` more for one that has `had`. False, and nothing is taken, where
  /// that is too much.
  bool Take(const std::string& address, int64_t bytes, int64_t had);
  void Return(const std::string& address, int64_t bytes);

  int64_t limit_of_address() const { return limit_ / 4 * 3; }
  /// Of one, where its address has no other.
  int64_t limit_of_one() const { return limit_of_address() / 3 * 2; }
  int64_t taken() const;

 private:
  const int64_t limit_;
  mutable std::mutex mutex_;
  int64_t taken_ = 0;
  std::unordered_map<std::string, int64_t> of_address_;
};

/// Bytes that grow, and are taken from a budget for as long as they exist.
class CountedBytes {
 public:
  CountedBytes() = default;
  CountedBytes(std::shared_ptr<ByteBudget> budget, std::string address)
      : budget_(std::move(budget)), address_(std::move(address)) {}
  CountedBytes(CountedBytes&& other) noexcept { Swap(other); }
  CountedBytes& operator=(CountedBytes&& other) noexcept {
    Swap(other);
    return *this;
  }
  ~CountedBytes();

  /// Room for `bytes` >= 0 more behind end(). Where that takes more memory, it
  /// doubles, up to `most` bytes in all where that is enough.
  /// RESOURCE_EXHAUSTED where the budget or the memory is used up.
  absl::Status Grow(size_t bytes, size_t most = SIZE_MAX);
  char* end() { return bytes_ + size_; }
  size_t room() const { return capacity_ - size_; }
  /// `bytes` <= room() were written at end().
  void Commit(size_t bytes) { size_ += bytes; }

  size_t size() const { return size_; }
  absl::string_view view() const { return {bytes_, size_}; }

  /// The bytes, which stay counted until the last slice of them is gone.
  grpc::Slice ToSlice() &&;

 private:
  void Swap(CountedBytes& other) noexcept;

  std::shared_ptr<ByteBudget> budget_;  // null: nobody counts
  std::string address_;
  char* bytes_ = nullptr;
  size_t size_ = 0;
  size_t capacity_ = 0;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_HTTP_PORT_COUNTED_BYTES_H_
