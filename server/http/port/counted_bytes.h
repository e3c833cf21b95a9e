#ifndef ATTENTION_SERVER_HTTP_PORT_COUNTED_BYTES_H_
#define ATTENTION_SERVER_HTTP_PORT_COUNTED_BYTES_H_

#include <grpcpp/support/slice.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/scheduling/ledger.h"
#include "server/telemetry/refusal.h"

namespace attention::server {

/// Bounds the memory that HTTP requests take before they are admitted, kBodies
/// of a ledger: all of them; those of one address, three quarters at most; and
/// each by what it leaves to the others of its address, half as much as it has
/// itself at least. So one alone has half of all, and however many are
/// unfinished, there is room for another that is smaller.
struct ByteBudget {
  std::shared_ptr<Ledger> ledger;
  int64_t limit = 0;

  int64_t limit_of_address() const { return limit / 4 * 3; }
  /// Of one, where its address has no other. There is room for one byte more,
  /// which shows that a body in chunks is longer.
  int64_t limit_of_one() const {
    return std::max<int64_t>(limit_of_address() / 3 * 2 - 1, 0);
  }

  /// Has `hold` be of `bytes` for `address`. Where that is too much it stays as
  /// it was, and the reason is returned: kServerMemory or kCallerMemory.
  Refusal Resize(Ledger::Hold& hold, const std::string& address,
                 int64_t bytes) const;
};

/// Bytes that grow, and are taken from a budget for as long as they exist.
class CountedBytes {
 public:
  CountedBytes() = default;
  /// A null `budget` counts nothing.
  CountedBytes(std::shared_ptr<const ByteBudget> budget, std::string address)
      : budget_(std::move(budget)), address_(std::move(address)) {}
  CountedBytes(CountedBytes&& other) noexcept { Swap(other); }
  CountedBytes& operator=(CountedBytes&& other) noexcept {
    Swap(other);
    return *this;
  }
  ~CountedBytes();

  /// Room for `bytes` >= 0 more behind end(). Where that takes more memory, it
  /// doubles, up to `most` bytes in all where that is enough, unless the budget
  /// has room for no more than `bytes`.
  /// RESOURCE_EXHAUSTED where the budget or the memory is used up; `refusal` is
  /// set to which, unless it is null.
  absl::Status Grow(size_t bytes, size_t most = SIZE_MAX,
                    Refusal* refusal = nullptr);
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

  std::shared_ptr<const ByteBudget> budget_;
  std::string address_;
  Ledger::Hold hold_;
  char* bytes_ = nullptr;
  size_t size_ = 0;
  size_t capacity_ = 0;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_HTTP_PORT_COUNTED_BYTES_H_
