#include "server/memory/system_memory_region.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "server/memory/region_names.h"

namespace attention::server {
namespace {

absl::Status SystemError(const SharedMemoryDescription& description,
                         absl::string_view action) {
  return absl::ErrnoToStatus(
      errno, absl::StrCat(RegionPlace(description.name), ": ", action, " key '",
                          description.key, "'"));
}

// Whether somebody holds the exclusive lock on a file. Asked for with a shared
// one, so that two who ask at once do not take each other for its owner.
bool IsLocked(const FileDescriptor& file) {
  if (flock(file.get(), LOCK_SH | LOCK_NB) != 0) return errno == EWOULDBLOCK;
  flock(file.get(), LOCK_UN);
  return false;
}

}  // namespace

absl::StatusOr<std::shared_ptr<SystemMemoryRegion>> SystemMemoryRegion::Map(
    SharedMemoryDescription description) {
  if (absl::Status status = CheckSharedMemoryKey(description.key);
      !status.ok()) {
    return status;
  }
  if (description.byte_size == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(RegionPlace(description.name),
                     ": byte_size is 0 (expected at least 1)"));
  }
  auto region =
      absl::WrapUnique(new SystemMemoryRegion(std::move(description)));
  FileDescriptor& object = region->object_file_;
  object =
      FileDescriptor(shm_open(region->description().key.c_str(), O_RDWR, 0));
  if (!object.ok()) return SystemError(region->description(), "opening");
  if (absl::Status status = region->MapObject(); !status.ok()) return status;
  // The mapping keeps the object alive.
  if (!IsLocked(object)) object = FileDescriptor();
  return std::shared_ptr<SystemMemoryRegion>(std::move(region));
}

absl::Status SystemMemoryRegion::MapObject() {
  const int descriptor = object_file_.get();
  struct stat object = {};
  if (fstat(descriptor, &object) != 0) {
    return SystemError(description(), "asking for the size of");
  }
  const uint64_t offset = description().offset;
  const uint64_t size = description().byte_size;
  const auto object_size = static_cast<uint64_t>(object.st_size);
  // Differences and no sums: those of a caller's numbers may wrap around.
  if (!S_ISREG(object.st_mode) || offset > object_size ||
      size > object_size - offset) {
    return absl::InvalidArgumentError(absl::StrCat(
        RegionPlace(description().name), ": offset ", offset, " and byte_size ",
        size, " do not lie within key '", description().key, "', which has ",
        object_size, " bytes"));
  }
  // Whole pages, because that is what the guard puts others in place of.
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const uint64_t lead = offset % page;
  const uint64_t mapped = (lead + size + page - 1) / page * page;
  void* const begin = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_SHARED,
                           descriptor, static_cast<off_t>(offset - lead));
  if (begin == MAP_FAILED) {
    const absl::Status error = SystemError(description(), "mapping");
    errno = 0;  // it is handled here: see last_words.h
    return absl::ResourceExhaustedError(error.message());
  }
  mapping_ = begin;
  mapping_size_ = mapped;
  set_begin(static_cast<std::byte*>(begin) + lead);
  set_object(object.st_dev, object.st_ino);
  absl::StatusOr<FaultGuard> guard = FaultGuard::Create(begin, mapped);
  if (!guard.ok()) return guard.status();
  guard_.emplace(*std::move(guard));
  return absl::OkStatus();
}

void SystemMemoryRegion::Pin(const Engine& engine) {
  is_watched_ = true;  // a device copies as soon as the memory is pinned
  pinned_ =
      engine.PinHostMemory({static_cast<std::byte*>(mapping_), mapping_size_});
  is_watched_ = pinned_ != nullptr;
}

SystemMemoryRegion::~SystemMemoryRegion() {
  const bool released = pinned_ == nullptr || pinned_->Release();
  guard_.reset();
  if (mapping_ != nullptr && released) munmap(mapping_, mapping_size_);
}

absl::Status SystemMemoryRegion::CheckIntact() const {
  // A device that copies by itself raises no signal where the object was cut
  // off, and goes on with the pages that it had. The last page goes first:
  // where it is gone, this access raises the signal.
  if (is_watched_) {
    const auto* const last =
        static_cast<const volatile std::byte*>(mapping_) + mapping_size_ - 1;
    static_cast<void>(*last);
  }
  if (!lost()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(RegionPlace(description().name),
                   ": its memory went away while it was used, because "
                   "key '",
                   description().key,
                   "' was truncated or the system has no room "
                   "for it; unregister the region and register it again"));
}

bool SystemMemoryRegion::Abandoned() const {
  return object_file_.ok() && !IsLocked(object_file_);
}

absl::Status SystemMemoryRegion::CopyToHost(const std::byte* from,
                                            absl::Span<std::byte> to) const {
  std::memcpy(to.data(), from, to.size());
  return absl::OkStatus();
}

}  // namespace attention::server
