#ifndef ATTENTION_CORE_PINNED_RESERVE_H_
#define ATTENTION_CORE_PINNED_RESERVE_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/backend.h"

namespace attention {

/// Host memory that devices copy from by themselves (Backend::PinHostMemory),
/// for tensors of requests: what is gathered into it needs no staging buffer.
/// It is pinned once, because pinning takes longer than copying. May be used
/// from several threads at once.
///
/// Not for results: a device that was given up may still copy what it computes,
/// long after its request was answered and the memory is another one's.
class PinnedReserve {
 public:
  /// Empty: has room for nothing.
  PinnedReserve() = default;
  /// About `bytes` for the devices of `backend`. Empty where it has none, or
  /// where the system does not let them reach host memory, or has none.
  PinnedReserve(const Backend& backend, int64_t bytes);

  /// `bytes` > 0 that begin at a multiple of 64, uninitialised; null where
  /// there is no room. They may outlive this object and the backend.
  std::shared_ptr<std::byte> Take(int64_t bytes) const;

  /// 0 where it is empty.
  int64_t size() const;

 private:
  class Memory;

  std::shared_ptr<Memory> memory_;
};

}  // namespace attention

#endif  // ATTENTION_CORE_PINNED_RESERVE_H_
