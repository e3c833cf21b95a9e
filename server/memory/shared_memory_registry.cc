#include "server/memory/shared_memory_registry.h"

#include <chrono>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/utf8.h"
#include "server/memory/region_names.h"

namespace attention::server {
namespace {

constexpr std::chrono::seconds kPause{1};

absl::Status Unknown(const std::string& name) {
  return absl::NotFoundError(
      absl::StrCat("shared memory region ", Shown(name),
                   ": no region of that name is registered"));
}

MemorySpace SpaceOf(const SharedMemoryRegion& region) {
  return region.description().space;
}

}  // namespace

absl::Status SharedMemoryRegistry::Register(const std::string& name,
                                            MapRegion map) {
  if (absl::Status status = CheckSharedMemoryName(name); !status.ok()) {
    return status;
  }
  // Held while the memory is opened and mapped, too, which takes microseconds:
  // two callers that take one name at once must not both have it.
  const std::lock_guard lock(mutex_);
  if (regions_.contains(name)) {
    return absl::AlreadyExistsError(absl::StrCat(
        RegionPlace(name), ": the name is taken; unregister it first"));
  }
  if (regions_.size() >= most_regions_) {
    return absl::ResourceExhaustedError(absl::StrCat(
        RegionPlace(name), ": ", regions_.size(),
        " regions are registered (expected at most ", most_regions_, ")"));
  }
  if (absl::Status status = StartSweeper(); !status.ok()) return status;
  absl::StatusOr<std::shared_ptr<SharedMemoryRegion>> region = map();
  if (!region.ok()) return region.status();
  regions_.emplace(name, *std::move(region));
  return absl::OkStatus();
}

void SharedMemoryRegistry::Unregister(MemorySpace space,
                                      const std::string& name) {
  // Unmapping takes its time, outside the lock.
  Regions::node_type unregistered;
  const std::lock_guard lock(mutex_);
  const auto found = regions_.find(name);
  if (found == regions_.end()) return;
  if (SpaceOf(*found->second) == space) unregistered = regions_.extract(found);
}

void SharedMemoryRegistry::UnregisterAll(MemorySpace space) {
  Regions unregistered;
  const std::lock_guard lock(mutex_);
  for (auto next = regions_.begin(); next != regions_.end();) {
    const auto region = next++;
    if (SpaceOf(*region->second) == space) {
      unregistered.insert(regions_.extract(region));
    }
  }
}

void SharedMemoryRegistry::UnregisterAbandoned() {
  Regions abandoned;
  const std::lock_guard lock(mutex_);
  for (auto next = regions_.begin(); next != regions_.end();) {
    const auto region = next++;
    if (region->second->Abandoned()) abandoned.insert(regions_.extract(region));
  }
}

absl::Status SharedMemoryRegistry::StartSweeper() {
  if (sweeper_.joinable()) return absl::OkStatus();
  try {
    sweeper_ =
        std::jthread([this](const std::stop_token& stop) { Sweep(stop); });
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no thread to look after shared memory: ", error.what()));
  }
  return absl::OkStatus();
}

void SharedMemoryRegistry::Sweep(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  const auto stopping = [&stop] { return stop.stop_requested(); };
  while (!wake_.wait_for(lock, stop, kPause, stopping)) {
    lock.unlock();
    UnregisterAbandoned();
    lock.lock();
  }
}

absl::StatusOr<std::vector<SharedMemoryDescription>>
SharedMemoryRegistry::Status(MemorySpace space, const std::string& name) const {
  const std::lock_guard lock(mutex_);
  std::vector<SharedMemoryDescription> found;
  for (const auto& [registered, region] : regions_) {
    if (SpaceOf(*region) == space && (name.empty() || name == registered)) {
      found.push_back(region->description());
    }
  }
  if (found.empty() && !name.empty()) return Unknown(name);
  return found;
}

absl::StatusOr<std::shared_ptr<SharedMemoryRegion>> SharedMemoryRegistry::Find(
    const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const auto found = regions_.find(name);
  if (found == regions_.end()) return Unknown(name);
  return found->second;
}

}  // namespace attention::server
