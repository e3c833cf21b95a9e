#ifndef ATTENTION_CORE_CUDA_EMULATION_EMULATION_H_
#define ATTENTION_CORE_CUDA_EMULATION_EMULATION_H_

#include <cstddef>
#include <cstdint>
#include <functional>

/// A device's threads on the host: one block after the other, a block's threads
/// as fibers of the calling thread, which change where they wait for each
/// other. What the functions of portable.h do here is in host.h.
///
/// It finds what a device may not: shared memory is exactly as large as was
/// asked for and holds NaN at first, so that the address sanitizer and the
/// results show what is out of bounds or not initialised; threads that wait for
/// one that has gone another way end the process, and so do shuffles with lanes
/// that have ended; copies arrive when they are waited for and no earlier; and
/// races for shared memory end the process too (race_check.h), as far as the
/// emulation is told of accesses: by the functions of portable.h always, by
/// kernels' own loads and stores where race_hooks.cc is linked.
namespace attention::cuda::emulation {

/// Which thread of a block runs first, up to the point at which it waits.
enum class Order : uint8_t { kAscending, kDescending };

/// For grids that this thread runs from now on.
void SetOrder(Order order);

/// Runs kernel() on every thread of every block. threads is a multiple of 32 up
/// to 1024.
void RunGrid(int64_t blocks, int threads, int64_t shared_bytes,
             const std::function<void()>& kernel);

// For threads of a running grid.
int ThreadIndex();
int64_t BlockIndex();
std::byte* SharedMemory();

/// Waits for all threads of the block, or of the warp.
void SyncBlock();
void SyncWarp();
bool SyncBlockOr(bool value);

/// Starts a copy of 4, 8 or 16 bytes, or, where `from` is null, of zeros; ends
/// a group of this thread's copies; waits for all groups but the newest ones.
void CopyAsync(void* to, const void* from, int64_t bytes);
void CommitCopies();
void WaitForCopies(int newest);

/// Before the running thread reads or writes; what is not in shared memory is
/// passed over.
void NoteAccess(const void* address, int64_t bytes, bool writes);

/// Memory in which lanes of a warp show each other `bytes` each: fill one's
/// own, SyncWarp(), read others'. It is written over by the next exchange but
/// one.
inline constexpr int64_t kExchangeBytes = 32;
struct Exchange {
  std::byte* data;  // 32 times kExchangeBytes
  std::byte* Lane(int lane) const { return data + lane * kExchangeBytes; }
};
Exchange NextExchange();

}  // namespace attention::cuda::emulation

#endif  // ATTENTION_CORE_CUDA_EMULATION_EMULATION_H_
