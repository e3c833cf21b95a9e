#ifndef ATTENTION_SERVER_MEMORY_HOLD_BYTES_H_
#define ATTENTION_SERVER_MEMORY_HOLD_BYTES_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace attention::server {

/// Asks for memory that a request takes beyond its message's bytes, before it
/// is taken. Other requests may run within; what takes long to read asks for 0
/// bytes now and then, for that. A failure is what the caller of the request
/// gets: RESOURCE_EXHAUSTED or UNAVAILABLE, or why the request was stopped.
using HoldBytes = absl::FunctionRef<absl::Status(int64_t bytes)>;

/// Pauses of who reads or merges elements one by one, which takes long: asks
/// for 0 bytes with each MiB.
class ReadingPauses {
 public:
  explicit ReadingPauses(HoldBytes hold) : hold_(hold) {}

  /// With bytes that were read so far, which never fall. What `hold` says where
  /// a pause is due.
  absl::Status At(int64_t position) {
    if (position < next_) return absl::OkStatus();
    next_ = position + kBetween;
    return hold_(0);
  }

 private:
  static constexpr int64_t kBetween = 1 << 20;  // some 5 to 10 ms

  HoldBytes hold_;
  int64_t next_ = kBetween;
};

/// Where nobody counts.
inline absl::Status HoldUncounted(int64_t) { return absl::OkStatus(); }

}  // namespace attention::server

#endif  // ATTENTION_SERVER_MEMORY_HOLD_BYTES_H_
