#include "core/cuda/device_pages.h"

#include <iterator>

#include "core/cuda/wait_and_look.h"

namespace attention::cuda {
namespace {

// Between so many bytes a stop is looked at, and others get what is there.
constexpr int64_t kMostBytesAtOnce = int64_t{64} << 20;

}  // namespace

DevicePages::DevicePages(MemoryPool& pool)
    : pool_(pool),
      memory_(pool),
      listener_([this](uint64_t number) { End(number); }) {
  pool_.SetGiveBack([this](int64_t bytes) { return GiveBack(bytes); });
}

bool DevicePages::Fits(int64_t bytes) {
  return pool_.FindLimit().ok() && bytes <= memory_.limit();
}

bool DevicePages::Fits(absl::Span<const ValidatedProblem::Block> blocks) {
  int64_t bytes = 0;
  for (const ValidatedProblem::Block& block : blocks) {
    const std::optional<PageForm> form = PageFormOf(block);
    if (!form) return false;
    bytes += BytesOf(*form);
  }
  return Fits(bytes);
}

std::optional<DevicePages::Hold> DevicePages::Take(
    absl::Span<const ValidatedProblem::Block> blocks,
    const std::stop_token& stop, const std::function<void()>& look) {
  std::vector<PageForm> forms;
  int64_t bytes = 0;  // of those that are not held
  for (const ValidatedProblem::Block& block : blocks) {
    const std::optional<PageForm> form = PageFormOf(block);
    if (!form) return std::nullopt;
    forms.push_back(*form);
    bytes += BytesOf(*form);
  }
  if (!Fits(bytes)) return std::nullopt;
  Hold hold(this, blocks);  // it lets go after the lock
  std::unique_lock lock(mutex_);
  hold.pages_.assign(blocks.size(), nullptr);
  // First those that are there, so that they do not make room for the others.
  for (size_t n = 0; n < blocks.size(); ++n) {
    Page* const page = Find(blocks[n].page);
    if (page == nullptr) continue;
    if (page->form != forms[n]) return std::nullopt;
    HoldPage(*page);
    hold.pages_[n] = page;
    bytes -= BytesOf(forms[n]);
  }
  if (held_bytes_ + bytes > memory_.limit()) return std::nullopt;
  for (size_t n = 0; n < blocks.size(); ++n) {
    if (hold.pages_[n] != nullptr) continue;
    Page* const page = FindOrAdd(blocks[n].page, forms[n], lock, stop, look);
    if (page == nullptr || page->form != forms[n]) return std::nullopt;
    HoldPage(*page);
    hold.pages_[n] = page;
  }
  return hold;
}

DevicePages::Page* DevicePages::Find(uint64_t number) {
  const auto found = known_.find(number);
  return found == known_.end() ? nullptr : found->second;
}

// Null where there is no room, or once a stop was requested.
DevicePages::Page* DevicePages::FindOrAdd(uint64_t number, const PageForm& form,
                                          std::unique_lock<std::mutex>& lock,
                                          const std::stop_token& stop,
                                          const std::function<void()>& look) {
  std::optional<PageMemory::Place> place;
  // Once for what is kept and once for each page that goes: room that others
  // take each time is not sought for ever.
  bool may_make_room = true;
  while (!place) {
    if (Page* const found = Find(number)) return found;
    place = memory_.Take(BytesOf(form));
    if (place) break;
    if (std::exchange(may_make_room, false) &&
        MakeRoom(form, lock, stop, look)) {
      continue;
    }
    if (stop.stop_requested() || unheld_.empty()) return nullptr;
    Drop(unheld_.front());
    may_make_room = true;
  }
  Page& page = unheld_.emplace_back(
      Page{.number = number, .form = form, .place = *place});
  page.self = std::prev(unheld_.end());
  return known_[number] = &page;
}

bool DevicePages::MakeRoom(const PageForm& form,
                           std::unique_lock<std::mutex>& lock,
                           const std::stop_token& stop,
                           const std::function<void()>& look) {
  const std::optional<int64_t> bytes = memory_.PieceBytes(BytesOf(form));
  if (!bytes) return false;
  lock.unlock();
  const bool made = pool_.MakeRoom(*bytes, stop, look);
  lock.lock();
  return made;
}

void DevicePages::HoldPage(Page& page) {
  if (page.holders++ > 0) return;
  held_.splice(held_.end(), unheld_, page.self);
  held_bytes_ += BytesOf(page.form);
}

// Of a page that nobody holds. True where memory went back to the pool.
bool DevicePages::Drop(Page& page) {
  const bool given_back = memory_.Free(page.place);
  if (!page.has_ended) known_.erase(page.number);
  unheld_.erase(page.self);
  return given_back;
}

void DevicePages::LetGo(const std::vector<Page*>& pages) {
  {
    const std::lock_guard lock(mutex_);
    for (Page* const page : pages) {
      if (page == nullptr || --page->holders > 0) continue;
      unheld_.splice(unheld_.end(), held_, page->self);
      held_bytes_ -= BytesOf(page->form);
      if (page->has_ended || page->keys == 0) Drop(*page);
    }
  }
  pool_.AskAgain();
}

bool DevicePages::GiveBack(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (memory_.bytes() - held_bytes_ < bytes) return false;
  while (!unheld_.empty()) {
    if (Drop(unheld_.front())) return true;
  }
  return false;
}

void DevicePages::End(uint64_t number) {
  {
    const std::lock_guard lock(mutex_);
    Page* const page = Find(number);
    if (page == nullptr) return;
    if (page->holders > 0) {
      page->has_ended = true;
      known_.erase(number);
      return;
    }
    Drop(*page);
  }
  pool_.AskAgain();
}

absl::Status DevicePages::Bring(
    absl::Span<const Hold* const> holds, const std::stop_token& stop,
    const std::function<void()>& look,
    absl::FunctionRef<absl::Status(absl::Span<const PageRows>)> bring) {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (stop.stop_requested()) {
      return absl::CancelledError("stopped before its pages were brought");
    }
    const uint64_t seen = times_brought_;
    bool others_bring = false;
    const std::vector<Claim> claims = ClaimRows(holds, others_bring);
    if (claims.empty() && !others_bring) return absl::OkStatus();
    if (claims.empty()) {
      WaitAndLook(brought_, lock, stop, look,
                  [&] { return times_brought_ != seen; });
      continue;
    }
    std::vector<PageRows> rows;
    rows.reserve(claims.size());
    for (const Claim& claim : claims) rows.push_back(claim.rows);
    lock.unlock();
    absl::Status status = bring(rows);
    lock.lock();
    Finish(claims, status.ok());
    if (!status.ok()) return status;
  }
}

std::vector<DevicePages::Claim> DevicePages::ClaimRows(
    absl::Span<const Hold* const> holds, bool& others_bring) {
  std::vector<Claim> claims;
  int64_t bytes = 0;
  for (const Hold* hold : holds) {
    for (size_t n = 0; n < hold->pages_.size(); ++n) {
      Page* const page = hold->pages_[n];
      const ValidatedProblem::Block& block = hold->blocks_[n];
      if (page->keys >= block.key_count) continue;
      others_bring = others_bring || page->is_brought_now;
      if (page->is_brought_now || bytes >= kMostBytesAtOnce) continue;
      page->is_brought_now = true;
      claims.push_back({page,
                        {.block = &block,
                         .form = page->form,
                         .place = PlaceIn(page->form, page->place.data),
                         .first = page->keys,
                         .end = block.key_count}});
      bytes += claims.back().rows.bytes();
    }
  }
  return claims;
}

void DevicePages::Finish(const std::vector<Claim>& claims, bool brought) {
  for (const Claim& claim : claims) {
    claim.page->is_brought_now = false;
    if (!brought) continue;
    claim.page->keys = claim.rows.end;
    brought_bytes_ += claim.rows.bytes();
  }
  ++times_brought_;
  brought_.notify_all();
}

DevicePages::Figures DevicePages::Read() const {
  const std::lock_guard lock(mutex_);
  return {.pages = static_cast<int64_t>(held_.size() + unheld_.size()),
          .bytes = memory_.bytes(),
          .brought_bytes = brought_bytes_};
}

}  // namespace attention::cuda
