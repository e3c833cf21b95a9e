#include "core/store/page_pool.h"

#include <algorithm>
#include <iterator>
#include <new>
#include <utility>

namespace attention::store {
namespace {

constexpr std::align_val_t kHeapAlignment{64};

// A slab is a huge page, or a little more where its pages do not fill one.
constexpr int64_t kLeastSlabBytes = Mapping::kAlignment;
// So many slabs, and each new one is larger by another such piece: a process
// may have some 65,000 mappings (vm.max_map_count), which are then terabytes.
constexpr int64_t kSlabsOfOneSize = 1024;
constexpr int64_t kKeptSlabs = 8;

}  // namespace

PagePool& PagePool::OfProcess() {
  static auto* const pool = new PagePool;
  return *pool;
}

int64_t PagePool::SlabBytes() const {
  return kLeastSlabBytes * (1 + slabs_ / kSlabsOfOneSize);
}

int64_t PagePool::KeptLimit() const { return kKeptSlabs * SlabBytes(); }

int64_t PagePool::kept() const {
  const std::lock_guard lock(mutex_);
  return kept_;
}

int64_t PagePool::kept_limit() const {
  const std::lock_guard lock(mutex_);
  return KeptLimit();
}

int64_t PagePool::slabs() const {
  const std::lock_guard lock(mutex_);
  return slabs_;
}

PagePool::Memory PagePool::Take(int64_t bytes) {
  if (bytes < Mapping::Granule()) {
    void* const data = ::operator new(static_cast<size_t>(bytes),
                                      kHeapAlignment, std::nothrow);
    return {.data = static_cast<std::byte*>(data), .on_heap = true};
  }
  const std::lock_guard lock(mutex_);
  try {
    const Memory memory = TakeFrom(bytes);
    if (memory.data == nullptr) ForgetUnused(bytes);
    return memory;
  } catch (const std::bad_alloc&) {  // of a list, or of a slab's notes
    ForgetUnused(bytes);
    return {};
  }
}

PagePool::Memory PagePool::TakeFrom(int64_t bytes) {
  OfSize& of = sizes_[bytes];
  if (of.open.empty()) {
    const auto same = std::find_if(
        empty_.begin(), empty_.end(),
        [bytes](const auto& slab) { return slab.page_bytes() == bytes; });
    if (same != empty_.end()) {
      of.open.splice(of.open.begin(), empty_, same);
    } else if (!AddSlab(bytes, of)) {
      return {};
    }
  }
  const auto slab = of.open.begin();
  kept_ -= slab->warm_bytes();
  const Memory memory = {.data = slab->Take(), .slab = slab};
  kept_ += slab->warm_bytes();
  if (slab->full()) of.full.splice(of.full.begin(), of.open, slab);
  return memory;
}

bool PagePool::AddSlab(int64_t bytes, OfSize& of) {
  const int64_t count = (SlabBytes() + bytes - 1) / bytes;
  Mapping mapping(PageSlab::MappedBytes(bytes, count));
  if (mapping.data() == nullptr) return false;
  const bool huge = kept_ + (count - 1) * bytes <= KeptLimit();
  of.open.emplace_front(std::move(mapping), bytes, count, huge);
  kept_ += of.open.front().warm_bytes();
  ++slabs_;
  return true;
}

void PagePool::ForgetUnused(int64_t bytes) {
  const auto of = sizes_.find(bytes);
  if (of != sizes_.end() && of->second.open.empty() &&
      of->second.full.empty()) {
    sizes_.erase(of);
  }
}

// It ends with `gone`, after the lock.
void PagePool::Release(Slabs::iterator slab, Slabs& gone) {
  kept_ -= slab->warm_bytes();
  --slabs_;
  gone.splice(gone.end(), empty_, slab);
}

void PagePool::Return(const Memory& memory) {
  if (memory.on_heap) return ::operator delete(memory.data, kHeapAlignment);
  Slabs gone;
  const std::lock_guard lock(mutex_);
  const auto slab = memory.slab;
  const int64_t bytes = slab->page_bytes();
  OfSize& of = sizes_.find(bytes)->second;
  if (slab->full()) of.open.splice(of.open.begin(), of.full, slab);
  slab->Free(memory.data);
  kept_ += bytes;
  const bool is_empty = slab->taken() == 0;
  if (is_empty) {
    empty_.splice(empty_.end(), of.open, slab);
    ForgetUnused(bytes);
    // Without huge pages a new one is better.
    if (!slab->huge()) return Release(slab, gone);
  }
  while (kept_ > KeptLimit() && !empty_.empty()) {
    Release(empty_.begin(), gone);
  }
  if (kept_ <= KeptLimit() || is_empty) return;  // then it is among those
  slab->Cool(memory.data);
  kept_ -= bytes;
}

}  // namespace attention::store
