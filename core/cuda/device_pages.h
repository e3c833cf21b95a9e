#ifndef ATTENTION_CORE_CUDA_DEVICE_PAGES_H_
#define ATTENTION_CORE_CUDA_DEVICE_PAGES_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <optional>
#include <stop_token>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/cuda/page_memory.h"
#include "core/cuda/page_rows.h"
#include "core/page_numbers.h"
#include "core/validate.h"

namespace attention::cuda {

/// Copies of pages that stay (KeyValueBlock::page), kept in one device's
/// memory: what was brought is not brought again until its number ends. Pages
/// that nobody holds make room for others, the least recently held first, and
/// for jobs that would have to wait for memory. Safe for several threads at
/// once.
class DevicePages {
  struct Page {
    uint64_t number;
    PageForm form;
    PageMemory::Place place;
    std::list<Page>::iterator self = {};  // in the list that it is in
    int64_t keys = 0;                     // brought
    bool is_brought_now = false;
    bool has_ended = false;
    int64_t holders = 0;
  };

 public:
  /// Pages that stay where they are while it lives; those of one problem, in
  /// the order of its blocks.
  class Hold {
   public:
    Hold(Hold&& other) noexcept
        : of_(std::exchange(other.of_, nullptr)),
          blocks_(other.blocks_),
          pages_(std::move(other.pages_)) {}
    Hold& operator=(Hold&&) = delete;
    ~Hold() {
      if (of_ != nullptr) of_->LetGo(pages_);
    }

    /// Device memory of the n-th page's keys and values, which lie there as in
    /// the host's page.
    PagePlace place(size_t n) const {
      return PlaceIn(pages_[n]->form, pages_[n]->place.data);
    }

   private:
    friend class DevicePages;
    Hold(DevicePages* of, absl::Span<const ValidatedProblem::Block> blocks)
        : of_(of), blocks_(blocks) {}

    DevicePages* of_;
    absl::Span<const ValidatedProblem::Block> blocks_;
    std::vector<Page*> pages_;  // null while it is made
  };

  /// `pool`, of the device, must outlive it.
  explicit DevicePages(MemoryPool& pool);
  DevicePages(const DevicePages&) = delete;
  DevicePages& operator=(const DevicePages&) = delete;

  /// Whether there is room for a page for each block while nobody else holds
  /// pages. False where a block is none of a page that stays, or where the
  /// device cannot be asked for its memory.
  bool Fits(absl::Span<const ValidatedProblem::Block> blocks);

  /// Holds a page for each block. It waits for nobody who holds pages, but
  /// while the device frees memory: others' frees with calls of `look` now and
  /// then, until `stop` is requested. Nothing then, where a block is none of a
  /// page that stays, or where there is no room for all. The blocks must
  /// outlive the hold.
  std::optional<Hold> Take(absl::Span<const ValidatedProblem::Block> blocks,
                           const std::stop_token& stop,
                           const std::function<void()>& look);

  /// Brings what the held pages lack of their blocks' keys. `bring` is called,
  /// without a lock, with rows that nobody else brings at that time, some of
  /// them after the other, and has brought them when it returns OK. What others
  /// are bringing is waited for, with calls of `look` now and then. OK;
  /// CANCELLED once a stop was requested; or the first error of `bring`.
  absl::Status Bring(
      absl::Span<const Hold* const> holds, const std::stop_token& stop,
      const std::function<void()>& look,
      absl::FunctionRef<absl::Status(absl::Span<const PageRows>)> bring);

  /// Bytes that pages may take; 0 before the pool's limit is known.
  int64_t limit() const { return memory_.limit(); }

  struct Figures {
    int64_t pages = 0;          // that are there
    int64_t bytes = 0;          // of the pool
    int64_t brought_bytes = 0;  // since the start
  };
  Figures Read() const;

 private:
  // Rows of a page that one caller brings.
  struct Claim {
    Page* page;
    PageRows rows;
  };

  // So many bytes, while nobody else holds any.
  bool Fits(int64_t bytes);

  // These with mutex_ held. What is not there is null.
  Page* Find(uint64_t number);
  // Without the lock while the device makes room.
  Page* FindOrAdd(uint64_t number, const PageForm& form,
                  std::unique_lock<std::mutex>& lock,
                  const std::stop_token& stop,
                  const std::function<void()>& look);
  bool MakeRoom(const PageForm& form, std::unique_lock<std::mutex>& lock,
                const std::stop_token& stop, const std::function<void()>& look);
  void HoldPage(Page& page);
  bool Drop(Page& page);
  std::vector<Claim> ClaimRows(absl::Span<const Hold* const> holds,
                               bool& others_bring);
  void Finish(const std::vector<Claim>& claims, bool brought);

  void LetGo(const std::vector<Page*>& pages);
  bool GiveBack(int64_t bytes);
  void End(uint64_t number);

  MemoryPool& pool_;
  mutable std::mutex mutex_;
  std::condition_variable_any brought_;
  uint64_t times_brought_ = 0;
  PageMemory memory_;
  std::list<Page> held_;
  std::list<Page> unheld_;  // the least recently held first
  int64_t held_bytes_ = 0;
  std::unordered_map<uint64_t, Page*> known_;
  int64_t brought_bytes_ = 0;
  // Last, so that nobody calls End() any more when the rest goes.
  const PageNumberListener listener_;
};

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_DEVICE_PAGES_H_
