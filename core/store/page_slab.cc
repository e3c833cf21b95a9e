#include "core/store/page_slab.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/base/config.h"

#ifdef ABSL_HAVE_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#endif

namespace attention::store {
namespace {

// The address sanitizer sees what is read of a free place, or behind the end of
// a page: there is a gap of so many bytes.
#ifdef ABSL_HAVE_ADDRESS_SANITIZER
constexpr int64_t kGap = 64;
void Forbid(const std::byte* data, int64_t bytes) {
  __asan_poison_memory_region(data, static_cast<size_t>(bytes));
}
void Allow(const std::byte* data, int64_t bytes) {
  __asan_unpoison_memory_region(data, static_cast<size_t>(bytes));
}
#else
constexpr int64_t kGap = 0;
void Forbid(const std::byte* /*data*/, int64_t /*bytes*/) {}
void Allow(const std::byte* /*data*/, int64_t /*bytes*/) {}
#endif

int64_t RoundDown(int64_t bytes, int64_t unit) { return bytes / unit * unit; }
int64_t RoundUp(int64_t bytes, int64_t unit) {
  return RoundDown(bytes + unit - 1, unit);
}

}  // namespace

int64_t Mapping::Granule() {
  static const int64_t granule = sysconf(_SC_PAGESIZE);
  return granule;
}

Mapping::Mapping(int64_t bytes) {
  const int64_t wanted = RoundUp(bytes, Granule());
  const auto mapped = static_cast<size_t>(wanted + kAlignment);
  void* const address = mmap(nullptr, mapped, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) return;
  // What is aligned, as high as it can lie: the next mapping comes below, and
  // the two are one to the system, which has a limit for how many there are.
  auto* const begin = static_cast<std::byte*>(address);
  const auto end = reinterpret_cast<intptr_t>(begin) + wanted + kAlignment;
  const int64_t before =
      RoundDown(end - wanted, kAlignment) - reinterpret_cast<intptr_t>(begin);
  data_ = begin + before;
  bytes_ = wanted;
  if (before > 0) munmap(begin, static_cast<size_t>(before));
  if (before < kAlignment) {
    munmap(data_ + wanted, static_cast<size_t>(kAlignment - before));
  }
}

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}

Mapping::~Mapping() {
  if (data_ != nullptr) munmap(data_, static_cast<size_t>(bytes_));
}

void Mapping::UseHugePages(bool use) {
  madvise(data_, static_cast<size_t>(bytes_),
          use ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
}

void Mapping::Drop(int64_t begin, int64_t end) {
  if (begin >= end) return;
  madvise(data_ + begin, static_cast<size_t>(end - begin), MADV_DONTNEED);
}

int64_t PageSlab::MappedBytes(int64_t page_bytes, int64_t count) {
  return (page_bytes + kGap) * count;
}

PageSlab::PageSlab(Mapping mapping, int64_t page_bytes, int64_t count,
                   bool huge)
    : mapping_(std::move(mapping)),
      page_bytes_(page_bytes),
      places_(static_cast<size_t>(count), huge ? Place::kWarm : Place::kCold),
      warm_(huge ? count : 0),
      huge_(huge) {
  mapping_.UseHugePages(huge);
  Forbid(mapping_.data(), MappedBytes(page_bytes, count));
}

PageSlab::~PageSlab() {
  Allow(mapping_.data(), MappedBytes(page_bytes_, count()));
}

size_t PageSlab::PlaceOf(const std::byte* data) const {
  return static_cast<size_t>((data - mapping_.data()) / (page_bytes_ + kGap));
}

bool PageSlab::IsCold(size_t place) const {
  return places_[place] == Place::kCold;
}

std::byte* PageSlab::Take() {
  const Place wanted = warm_ > 0 ? Place::kWarm : Place::kCold;
  const auto found = std::find(places_.begin(), places_.end(), wanted);
  if (wanted == Place::kWarm) --warm_;
  ++taken_;
  *found = Place::kTaken;
  std::byte* const data =
      mapping_.data() + (found - places_.begin()) * (page_bytes_ + kGap);
  Allow(data, page_bytes_);
  return data;
}

void PageSlab::Free(const std::byte* data) {
  places_[PlaceOf(data)] = Place::kWarm;
  ++warm_;
  --taken_;
  Forbid(data, page_bytes_);
}

// A granule may have the ends of two places, never of three.
void PageSlab::Cool(const std::byte* data) {
  // Or the system would put a huge page together again.
  if (std::exchange(huge_, false)) mapping_.UseHugePages(false);
  const size_t place = PlaceOf(data);
  places_[place] = Place::kCold;
  --warm_;
  const int64_t granule = Mapping::Granule();
  const int64_t begin = data - mapping_.data();
  const int64_t end = begin + page_bytes_ + kGap;
  const bool cold_before = place == 0 || IsCold(place - 1);
  const bool cold_behind = place + 1 == places_.size() || IsCold(place + 1);
  mapping_.Drop(
      cold_before ? RoundDown(begin, granule) : RoundUp(begin, granule),
      cold_behind ? RoundUp(end, granule) : RoundDown(end, granule));
}

}  // namespace attention::store
