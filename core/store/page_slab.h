#ifndef ATTENTION_CORE_STORE_PAGE_SLAB_H_
#define ATTENTION_CORE_STORE_PAGE_SLAB_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace attention::store {

/// Memory mapped from the system, at a multiple of 2 MiB, which is a huge
/// page's size; unmapped with the object.
class Mapping {
 public:
  static constexpr int64_t kAlignment = int64_t{2} << 20;

  /// The system's page: what it gives and takes back, a power of two.
  static int64_t Granule();

  /// `bytes` (> 0) or a little more. data() is null where the system has none.
  explicit Mapping(int64_t bytes);
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&&) = delete;
  ~Mapping();

  std::byte* data() const { return data_; }

  /// Whether the system should back it with huge pages. It may have none, or
  /// may have been told not to use them.
  void UseHugePages(bool use);
  /// Gives the memory of [begin, end), multiples of Granule(), back. What is
  /// read there afterwards is 0.
  void Drop(int64_t begin, int64_t end);

 private:
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

/// A mapping cut into places of one size for pages. Places are taken or free;
/// free ones may have memory behind them (warm), or have none (cold). Not safe
/// for several threads at once.
class PageSlab {
 public:
  /// Of `count` places for pages of `page_bytes`, a multiple of 64 and at least
  /// a Granule(). With huge pages all places are warm at first, because the
  /// first byte that is written brings the memory of many; without, all are
  /// cold. The mapping is of MappedBytes() and has data.
  /// std::bad_alloc without memory for what it notes of each place.
  PageSlab(Mapping mapping, int64_t page_bytes, int64_t count, bool huge);
  PageSlab(const PageSlab&) = delete;
  PageSlab& operator=(const PageSlab&) = delete;
  ~PageSlab();

  static int64_t MappedBytes(int64_t page_bytes, int64_t count);

  int64_t page_bytes() const { return page_bytes_; }
  int64_t count() const { return static_cast<int64_t>(places_.size()); }
  int64_t taken() const { return taken_; }
  bool full() const { return taken_ == count(); }
  /// False from the first Cool() on: a part of a huge page is none.
  bool huge() const { return huge_; }
  int64_t warm_bytes() const { return warm_ * page_bytes_; }

  /// A free place, a warm one where there is one. There must be a free one.
  std::byte* Take();
  /// Frees a place that Take() gave. It is warm.
  void Free(const std::byte* data);
  /// Gives the memory of a warm place back to the system, but what it shares
  /// with a neighbour that has memory.
  void Cool(const std::byte* data);

 private:
  enum class Place : char { kTaken, kWarm, kCold };

  size_t PlaceOf(const std::byte* data) const;
  bool IsCold(size_t place) const;

  Mapping mapping_;
  const int64_t page_bytes_;
  std::vector<Place> places_;  // never grows
  int64_t taken_ = 0;
  int64_t warm_ = 0;
  bool huge_;
};

}  // namespace attention::store

#endif  // ATTENTION_CORE_STORE_PAGE_SLAB_H_
