#include "core/cuda/memory_pool.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/cuda/wait_and_look.h"

namespace attention::cuda {
namespace {

int64_t Rounded(int64_t bytes, int64_t limit) {
  return std::min(MemoryPool::InGranules(bytes), limit);
}

absl::Status Stopped() {
  return absl::CancelledError("stopped before it had memory");
}

}  // namespace

struct MemoryPool::Growth {
  absl::StatusOr<std::byte*> memory = nullptr;
  bool done = false;
  bool given_up = false;
};

MemoryPool::~MemoryPool() {
  constexpr auto kAskEvery = std::chrono::milliseconds(100);
  State& state = *state_;
  std::unique_lock lock(state.mutex);
  while (!state.returned.wait_for(lock, kAskEvery,
                                  [&] { return state.calls == 0; })) {
    if (!state.device->Health().ok()) break;
  }
  for (const Free& block : state.free) state.device->Free(block.data);
}

template <typename Call, typename After>
void MemoryPool::Apart(const Call& call, const After& after) {
  ++state_->calls;
  std::thread([state = state_, call, after] {
    call(*state->device);
    {
      const std::lock_guard lock(state->mutex);
      after(*state);
      --state->calls;
    }
    state->returned.notify_all();
  }).detach();
}

absl::Status MemoryPool::FindLimit() {
  State& state = *state_;
  if (state.limit != kNoLimitYet) return absl::OkStatus();
  const std::lock_guard lock(state.mutex);
  if (state.limit != kNoLimitYet) return absl::OkStatus();
  const absl::StatusOr<int64_t> free = state.device->FreeMemory();
  if (!free.ok()) return free.status();
  state.limit = static_cast<int64_t>(kShare * static_cast<double>(*free));
  return absl::OkStatus();
}

std::vector<MemoryPool::Free>::iterator MemoryPool::FindFree(int64_t bytes,
                                                             int64_t most) {
  State& state = *state_;
  most = std::min(most, state.limit - state.lent);
  auto best = state.free.end();
  for (auto it = state.free.begin(); it != state.free.end(); ++it) {
    if (it->bytes < bytes || it->bytes > most) continue;
    if (best == state.free.end() || it->bytes < best->bytes) best = it;
  }
  return best;
}

std::optional<MemoryPool::Block> MemoryPool::TakeKept(int64_t bytes,
                                                      int64_t most) {
  const auto kept = FindFree(bytes, most);
  if (kept == state_->free.end()) return std::nullopt;
  state_->lent += kept->bytes;
  Block block(this, kept->data, kept->bytes);
  state_->free.erase(kept);
  return block;
}

void MemoryPool::BeginRelease() {
  ++state_->releasing;
  const std::vector<Free> released = std::exchange(state_->free, {});
  Apart(
      [released](Device& device) {
        for (const Free& block : released) device.Free(block.data);
      },
      [released](State& state) {
        for (const Free& block : released) state.held -= block.bytes;
        --state.releasing;
      });
}

bool MemoryPool::WaitForReleased(int64_t rounded, int64_t most,
                                 std::unique_lock<std::mutex>& lock,
                                 const std::stop_token& stop,
                                 const std::function<void()>& look) {
  return WaitAndLook(state_->returned, lock, stop, look, [&] {
    return state_->releasing == 0 ||
           FindFree(rounded, most) != state_->free.end();
  });
}

absl::StatusOr<MemoryPool::Block> MemoryPool::Grow(
    int64_t rounded, std::unique_lock<std::mutex>& lock,
    const std::stop_token& stop, const std::function<void()>& look) {
  state_->held += rounded;
  state_->lent += rounded;
  const auto growth = std::make_shared<Growth>();
  Apart([growth, rounded](
            Device& device) { growth->memory = device.Allocate(rounded); },
        [growth, rounded](State& state) {
          growth->done = true;
          if (!growth->memory.ok()) state.held -= rounded;
          if (growth->memory.ok() && !growth->given_up) return;
          state.lent -= rounded;
          if (growth->memory.ok()) {
            state.free.push_back({*growth->memory, rounded});
          }
        });
  if (!WaitAndLook(state_->returned, lock, stop, look,
                   [&] { return growth->done; })) {
    growth->given_up = true;
    return Stopped();
  }
  // Nothing of it is left to the thread, which may end later.
  const absl::StatusOr<std::byte*> memory = std::move(growth->memory);
  if (!memory.ok()) return memory.status();
  return Block(this, *memory, rounded);
}

absl::StatusOr<MemoryPool::Block> MemoryPool::TakeUnlent(
    int64_t rounded, int64_t most, std::unique_lock<std::mutex>& lock,
    const std::stop_token& stop, const std::function<void()>& look) {
  State& state = *state_;
  for (;;) {
    std::optional<Block> kept = TakeKept(rounded, most);
    if (kept) return *std::move(kept);
    absl::Status status = absl::ResourceExhaustedError("the limit is reached");
    if (state.lent + rounded > state.limit) return status;
    if (state.held + rounded <= state.limit) {
      absl::StatusOr<Block> block = Grow(rounded, lock, stop, look);
      if (!absl::IsResourceExhausted(block.status())) return block;
      status = block.status();
    }
    if (!state.free.empty()) BeginRelease();
    if (state.releasing == 0) return status;
    if (!WaitForReleased(rounded, most, lock, stop, look)) return Stopped();
  }
}

absl::StatusOr<MemoryPool::Block> MemoryPool::Take(
    int64_t bytes, const std::stop_token& stop,
    const std::function<void()>& look) {
  if (absl::Status status = FindLimit(); !status.ok()) return status;
  std::unique_lock lock(state_->mutex);
  const int64_t limit = state_->limit;
  if (bytes > limit) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the request needs ", bytes,
                     " bytes of device memory, more than the limit of ", limit,
                     " (--cuda-memory-limit)"));
  }
  const int64_t rounded = Rounded(bytes, limit);
  const auto is_room = [&] { return state_->lent + rounded <= limit; };
  for (;;) {
    const uint64_t seen = asked_again_;
    if (!is_room()) {
      if (AskBack(state_->lent + rounded - limit, lock)) continue;
      const auto changed = [&] { return is_room() || asked_again_ != seen; };
      if (WaitAndLook(state_->returned, lock, stop, look, changed)) continue;
      return Stopped();
    }
    absl::StatusOr<Block> block =
        TakeUnlent(rounded, 2 * rounded, lock, stop, look);
    if (!absl::IsResourceExhausted(block.status())) return block;
    // Others have taken the limit's rest meanwhile, or the device's memory.
    if (!is_room() || AskBack(rounded, lock)) continue;
    return absl::ResourceExhaustedError(
        absl::StrCat("the request needs ", bytes,
                     " bytes of device memory, and within the "
                     "limit of ",
                     limit, " (--cuda-memory-limit) the device has no more: ",
                     block.status().message()));
  }
}

bool MemoryPool::AskBack(int64_t bytes, std::unique_lock<std::mutex>& lock) {
  if (!give_back_) return false;
  lock.unlock();
  const bool given_back = give_back_(bytes);
  lock.lock();
  return given_back;
}

std::optional<MemoryPool::Block> MemoryPool::TryTake(int64_t bytes) {
  if (!FindLimit().ok()) return std::nullopt;
  const std::lock_guard lock(state_->mutex);
  if (bytes > state_->limit) return std::nullopt;
  const int64_t rounded = Rounded(bytes, state_->limit);
  return TakeKept(rounded, rounded);
}

bool MemoryPool::MakeRoom(int64_t bytes, const std::stop_token& stop,
                          const std::function<void()>& look) {
  std::unique_lock lock(state_->mutex);
  if (bytes > state_->limit) return false;
  const int64_t rounded = Rounded(bytes, state_->limit);
  const absl::StatusOr<Block> block =
      TakeUnlent(rounded, rounded, lock, stop, look);
  lock.unlock();  // before it is given back
  return block.ok();
}

void MemoryPool::AskAgain() {
  {
    const std::lock_guard lock(state_->mutex);
    ++asked_again_;
  }
  state_->returned.notify_all();
}

void MemoryPool::GiveBack(std::byte* data, int64_t bytes) {
  {
    const std::lock_guard lock(state_->mutex);
    state_->lent -= bytes;
    state_->free.push_back({data, bytes});
  }
  state_->returned.notify_all();
}

}  // namespace attention::cuda
