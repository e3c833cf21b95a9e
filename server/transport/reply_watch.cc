#include "server/transport/reply_watch.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/out_of_memory.h"

namespace attention::server {
namespace {

// From cancelling a call to closing its connection; and from Hurry() to
// cancelling it.
constexpr std::chrono::seconds kGrace{1};

}  // namespace

ReplyWatch::ReplyWatch(
    std::chrono::milliseconds timeout,
    std::function<void(const std::string& peer)> close_connection)
    : timeout_(timeout),
      close_connection_(std::move(close_connection)),
      thread_([this] { Run(); }) {}

ReplyWatch::~ReplyWatch() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

ReplyWatch::Watch& ReplyWatch::Watch::operator=(Watch&& other) noexcept {
  if (this != &other) {
    End();
    owner_ = std::exchange(other.owner_, nullptr);
    entry_ = other.entry_;
  }
  return *this;
}

void ReplyWatch::Watch::End() {
  ReplyWatch* owner = std::exchange(owner_, nullptr);
  if (owner == nullptr) return;
  grpc_call* call = entry_->call;
  {
    const std::lock_guard lock(owner->mutex_);
    (entry_->cancelled ? owner->cancelled_ : owner->waiting_).erase(entry_);
  }
  grpc_call_unref(call);
}

void ReplyWatch::Watch::Hurry() {
  if (owner_ != nullptr) owner_->Hurry(entry_);
}

void ReplyWatch::Hurry(std::list<Entry>::iterator entry) {
  const Clock::time_point due = Clock::now() + kGrace;
  const std::lock_guard lock(mutex_);
  if (entry->cancelled || entry->due <= due) return;
  entry->due = due;
  const auto later =
      std::find_if(waiting_.begin(), waiting_.end(),
                   [due](const Entry& each) { return each.due > due; });
  waiting_.splice(later, waiting_, entry);
  changed_.notify_all();
}

ReplyWatch::Watch ReplyWatch::Begin(grpc_call* call, const std::string& peer) {
  Watch watch;
  IfMemoryAllows([&] {
    const std::lock_guard lock(mutex_);
    watch.entry_ =
        waiting_.insert(waiting_.end(), {call, peer, Clock::now() + timeout_});
    watch.owner_ = this;
    grpc_call_ref(call);
  });
  return watch;
}

void ReplyWatch::Run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const Clock::time_point now = Clock::now();
    if (!waiting_.empty() && waiting_.front().due <= now) {
      CancelFirst(lock);
    } else if (!cancelled_.empty() && cancelled_.front().due <= now) {
      CloseFirst(lock);
    } else {
      // Nobody wakes it for a new entry, which would cost every reply a switch
      // of threads: none is due before this.
      Clock::time_point next = now + timeout_;
      if (!waiting_.empty()) next = std::min(next, waiting_.front().due);
      if (!cancelled_.empty()) next = std::min(next, cancelled_.front().due);
      changed_.wait_until(lock, next);
    }
  }
}

void ReplyWatch::CancelFirst(std::unique_lock<std::mutex>& lock) {
  const auto entry = waiting_.begin();
  entry->cancelled = true;
  entry->due = Clock::now() + kGrace;
  grpc_call* call = entry->call;
  const std::string peer = entry->peer;
  cancelled_.splice(cancelled_.end(), waiting_, entry);
  grpc_call_ref(call);  // the call may be done as soon as the lock is released
  lock.unlock();
  grpc_call_cancel(call, nullptr);
  if (const int64_t calls = ended_.Count(); calls > 0) {
    spdlog::warn(absl::StrCat("ended ", calls, " calls, the last of ", peer,
                              ": its reply was not taken within ",
                              timeout_.count(),
                              " ms (--reply-timeout), or a second where its "
                              "caller is not known any more"));
  }
  grpc_call_unref(call);
  lock.lock();
}

void ReplyWatch::CloseFirst(std::unique_lock<std::mutex>& lock) {
  const auto entry = cancelled_.begin();
  entry->due = Clock::now() + kGrace;
  cancelled_.splice(cancelled_.end(), cancelled_, entry);
  const std::string peer = entry->peer;
  lock.unlock();
  close_connection_(peer);
  lock.lock();
}

}  // namespace attention::server
