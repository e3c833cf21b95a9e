#ifndef ATTENTION_CORE_STORE_PAGE_POOL_H_
#define ATTENTION_CORE_STORE_PAGE_POOL_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <mutex>

#include "core/store/page_slab.h"

namespace attention::store {

/// Where pages have their memory from: slabs of some 2 MiB each, of one size of
/// page each, in huge pages where the system has them. An allocator would round
/// pages up, and has no huge pages.
///
/// Beyond the pages that are taken it has at most kept_limit() bytes. What is
/// freed beyond that goes back to the system: slabs that are wholly free first,
/// then single pages, whose slab has no huge pages from then on. A new slab
/// that would go beyond it has none either, so its memory comes as it is
/// written. Pages smaller than the system's own come from the heap.
///
/// Safe for several threads at once, who wait for each other no longer than a
/// call of the system takes.
class PagePool {
 public:
  /// The memory of one page; data is null where there was none.
  struct Memory {
    std::byte* data = nullptr;
    std::list<PageSlab>::iterator slab = {};  // of no meaning on the heap
    bool on_heap = false;
  };

  /// All that there is, but in tests. It never ends.
  static PagePool& OfProcess();

  PagePool() = default;
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  /// `bytes`, a multiple of 64 above 0, uninitialised, at a multiple of 64.
  Memory Take(int64_t bytes);
  /// Takes back what Take() gave, with data.
  void Return(const Memory& memory);

  /// Bytes of slabs that no page has taken and that may have memory.
  int64_t kept() const;
  /// 16 MiB, and somewhat more from 2 GiB of slabs on.
  int64_t kept_limit() const;
  /// How many slabs there are.
  int64_t slabs() const;

 private:
  using Slabs = std::list<PageSlab>;  // moved from one list to another
  struct OfSize {
    Slabs open;  // with taken and free places
    Slabs full;
  };

  // With mutex_ held.
  Memory TakeFrom(int64_t bytes);
  bool AddSlab(int64_t bytes, OfSize& of);
  void ForgetUnused(int64_t bytes);
  void Release(Slabs::iterator slab, Slabs& gone);
  int64_t SlabBytes() const;
  int64_t KeptLimit() const;

  mutable std::mutex mutex_;
  std::map<int64_t, OfSize> sizes_;  // by bytes of a page; with slabs each
  Slabs empty_;                      // of any size, freed longest ago first
  int64_t slabs_ = 0;
  int64_t kept_ = 0;  // warm bytes of all slabs
};

}  // namespace attention::store

#endif  // ATTENTION_CORE_STORE_PAGE_POOL_H_
