#ifndef ATTENTION_SERVER_MEMORY_FAULT_GUARD_H_
#define ATTENTION_SERVER_MEMORY_FAULT_GUARD_H_

#include <cstddef>

#include "absl/status/statusor.h"

namespace attention::server {

/// Keeps the process alive where memory that it shares with another process
/// goes away under it. Touching a page of a mapped object that its owner has
/// truncated (or for which the file system has no room left) raises SIGBUS.
/// While a guard stands over the mapping, the process's SIGBUS handler puts
/// zeroed private memory in the mapping's place and lets the access go on, on
/// whichever thread it was; faulted() tells afterwards that what was read and
/// written there since is worth nothing.
///
/// The first guard installs the handler, for as long as the process lives. A
/// fault at any other address goes to the handler that was there before, or
/// ends the process as it would have.
class FaultGuard {
 public:
  /// Mappings that can be guarded at a time, in the whole process.
  static constexpr int kMostGuards = 4096;

  /// Guards [begin, begin + size): whole pages, mapped, and of no other guard.
  /// RESOURCE_EXHAUSTED where there are kMostGuards already.
  static absl::StatusOr<FaultGuard> Create(void* begin, size_t size);

  FaultGuard(FaultGuard&& other) noexcept;
  FaultGuard& operator=(FaultGuard&& other) noexcept;
  /// Before the memory is unmapped: its addresses may be another's right after.
  ~FaultGuard();

  /// Whether memory was missing at least once; then it stays so. A fault on
  /// another thread is seen once that thread's work was waited for.
  bool faulted() const;

 private:
  explicit FaultGuard(int slot) : slot_(slot) {}

  int slot_;  // in the handler's table; -1 where moved from
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_MEMORY_FAULT_GUARD_H_
