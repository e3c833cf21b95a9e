#include "server/memory/shared_memory_region.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace attention::server {
namespace {

constexpr size_t kMostNameBytes = 256;
constexpr size_t kMostKeyBytes = 255;  // of a file name
constexpr size_t kMostShownBytes = 64;
constexpr absl::string_view kSpecial = "._-:+=@";
constexpr absl::string_view kReservedPrefix =
    "triton_python_backend_shm_region_";

bool HasOnly(absl::string_view text, absl::string_view special) {
  for (const char c : text) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) &&
        !absl::StrContains(special, c)) {
      return false;
    }
  }
  return true;
}

// Names come from callers and go into logs and messages.
std::string Shown(absl::string_view text) {
  return absl::StrCat("'", absl::CHexEscape(text.substr(0, kMostShownBytes)),
                      text.size() > kMostShownBytes ? "..." : "", "'");
}

std::string Place(const SharedMemoryDescription& description) {
  return absl::StrCat("shared memory region '", description.name, "'");
}

absl::Status SystemError(const SharedMemoryDescription& description,
                         absl::string_view action) {
  return absl::ErrnoToStatus(
      errno, absl::StrCat(Place(description), ": ", action, " key '",
                          description.key, "'"));
}

// Closes the object when its mapping stands: the mapping keeps it alive.
class Descriptor {
 public:
  explicit Descriptor(int descriptor) : descriptor_(descriptor) {}
  ~Descriptor() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

}  // namespace

absl::Status CheckSharedMemoryName(const std::string& name) {
  if (!name.empty() && name.size() <= kMostNameBytes &&
      HasOnly(name, absl::StrCat(kSpecial, "/"))) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("name: ", Shown(name), " (expected 1 to ", kMostNameBytes,
                   " letters, digits and ", kSpecial, "/)"));
}

absl::Status CheckSharedMemoryKey(const std::string& key) {
  const absl::string_view object = absl::StripPrefix(key, "/");
  if (absl::StartsWith(object, kReservedPrefix)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "key: ", Shown(key), " begins with the reserved ", kReservedPrefix));
  }
  if (!object.empty() && object.size() <= kMostKeyBytes &&
      HasOnly(object, kSpecial) && object != "." &&
      !absl::StrContains(object, "..")) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "key: ", Shown(key), " (expected '/' or nothing, then 1 to ",
      kMostKeyBytes, " letters, digits and ", kSpecial, ", without '..')"));
}

absl::StatusOr<std::shared_ptr<SharedMemoryRegion>> SharedMemoryRegion::Map(
    SharedMemoryDescription description) {
  if (absl::Status status = CheckSharedMemoryKey(description.key);
      !status.ok()) {
    return status;
  }
  if (description.byte_size == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        Place(description), ": byte_size is 0 (expected at least 1)"));
  }
  auto region =
      absl::WrapUnique(new SharedMemoryRegion(std::move(description)));
  const Descriptor object(
      shm_open(region->description_.key.c_str(), O_RDWR, 0));
  if (object.get() < 0) return SystemError(region->description_, "opening");
  if (absl::Status status = region->MapObject(object.get()); !status.ok()) {
    return status;
  }
  return std::shared_ptr<SharedMemoryRegion>(std::move(region));
}

absl::Status SharedMemoryRegion::MapObject(int descriptor) {
  struct stat object = {};
  if (fstat(descriptor, &object) != 0) {
    return SystemError(description_, "asking for the size of");
  }
  const uint64_t offset = description_.offset;
  const uint64_t size = description_.byte_size;
  const auto object_size = static_cast<uint64_t>(object.st_size);
  // Differences and no sums: those of a caller's numbers may wrap around.
  if (!S_ISREG(object.st_mode) || offset > object_size ||
      size > object_size - offset) {
    return absl::InvalidArgumentError(
        absl::StrCat(Place(description_), ": offset ", offset,
                     " and byte_size ", size, " do not lie within key '",
                     description_.key, "', which has ", object_size, " bytes"));
  }
  // Whole pages, because that is what the guard puts others in place of.
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const uint64_t lead = offset % page;
  const uint64_t mapped = (lead + size + page - 1) / page * page;
  void* const begin = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_SHARED,
                           descriptor, static_cast<off_t>(offset - lead));
  if (begin == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        SystemError(description_, "mapping").message());
  }
  mapping_ = begin;
  mapping_size_ = mapped;
  bytes_ = static_cast<std::byte*>(begin) + lead;
  absl::StatusOr<FaultGuard> guard = FaultGuard::Create(begin, mapped);
  if (!guard.ok()) return guard.status();
  guard_.emplace(*std::move(guard));
  return absl::OkStatus();
}

SharedMemoryRegion::~SharedMemoryRegion() {
  guard_.reset();
  if (mapping_ != nullptr) munmap(mapping_, mapping_size_);
}

absl::StatusOr<absl::Span<std::byte>> SharedMemoryRegion::Bytes(
    uint64_t offset, uint64_t byte_size) const {
  const uint64_t size = description_.byte_size;
  if (offset > size || byte_size > size - offset) {
    return absl::InvalidArgumentError(
        absl::StrCat(Place(description_), ": shared_memory_offset ", offset,
                     " and shared_memory_byte_size ", byte_size,
                     " do not lie within its ", size, " bytes"));
  }
  if (absl::Status status = CheckIntact(); !status.ok()) return status;
  return absl::MakeSpan(bytes_ + offset, byte_size);
}

absl::Status SharedMemoryRegion::CheckIntact() const {
  if (!lost()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(Place(description_),
                   ": its memory went away while it was used, because "
                   "key '",
                   description_.key,
                   "' was truncated or the system has no room "
                   "for it; unregister the region and register it again"));
}

}  // namespace attention::server
