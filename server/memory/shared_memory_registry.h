#ifndef ATTENTION_SERVER_MEMORY_SHARED_MEMORY_REGISTRY_H_
#define ATTENTION_SERVER_MEMORY_SHARED_MEMORY_REGISTRY_H_

#include <condition_variable>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/memory/shared_memory_region.h"

namespace attention::server {

/// The shared-memory regions that callers have registered, by name: what the
/// Open Inference Protocol's extensions for system and CUDA shared memory are
/// about (Triton's docs/protocol/extension_shared_memory.md). Safe for several
/// threads at once.
///
/// Whoever may register names any shared-memory object that the server's user
/// can open, whoever created it, and may free device memory while it is read:
/// switch it on for callers that are trusted.
class SharedMemoryRegistry {
 public:
  static constexpr size_t kMostRegions = 1024;

  /// Refuses a region beyond `most_regions`.
  explicit SharedMemoryRegistry(size_t most_regions = kMostRegions)
      : most_regions_(most_regions) {}

  using MapRegion =
      absl::FunctionRef<absl::StatusOr<std::shared_ptr<SharedMemoryRegion>>()>;

  /// Registers what `map` maps under a new name, that of the region. Regions of
  /// all memory spaces share their names. ALREADY_EXISTS for a name that is
  /// taken (also by the same region), RESOURCE_EXHAUSTED beyond the limit or
  /// without a thread for UnregisterAbandoned(), and what
  /// CheckSharedMemoryName and `map` refuse.
  absl::Status Register(const std::string& name, MapRegion map);

  /// Forgets a region of a memory space. Requests that hold it finish first;
  /// its memory is unmapped with the last of them. A name that is not
  /// registered is no error: that is what Triton's callers rely on.
  void Unregister(MemorySpace space, const std::string& name);
  void UnregisterAll(MemorySpace space);

  /// Forgets regions whose owners have ended. It is done once a second, on a
  /// thread that the first registration starts.
  void UnregisterAbandoned();

  /// What is registered of a memory space, in order of the names; of one name,
  /// where it is not empty. NOT_FOUND for a name that is not registered.
  absl::StatusOr<std::vector<SharedMemoryDescription>> Status(
      MemorySpace space, const std::string& name) const;

  /// Holds a region for as long as the caller holds the pointer. NOT_FOUND for
  /// a name that is not registered.
  absl::StatusOr<std::shared_ptr<SharedMemoryRegion>> Find(
      const std::string& name) const;

 private:
  using Regions = std::map<std::string, std::shared_ptr<SharedMemoryRegion>>;

  absl::Status StartSweeper();
  void Sweep(const std::stop_token& stop);

  const size_t most_regions_;
  mutable std::mutex mutex_;
  Regions regions_;
  std::condition_variable_any wake_;
  std::jthread sweeper_;  // last: it uses the others
};

/// The regions that a request may use.
struct SharedMemoryAccess {
  const SharedMemoryRegistry* regions = nullptr;  // null: switched off
  bool permitted = true;                          // to this caller
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_MEMORY_SHARED_MEMORY_REGISTRY_H_
