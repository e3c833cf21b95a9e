#include "core/page_numbers.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <shared_mutex>
#include <utility>
#include <vector>

namespace attention {
namespace {

struct Listeners {
  std::shared_mutex mutex;
  std::vector<const PageNumberListener*> all;
  // How many; read without the lock, for most processes have none.
  std::atomic<size_t> count{0};
};

// It never ends: pages may end after everything else.
Listeners& OfProcess() {
  static auto* const listeners = new Listeners;
  return *listeners;
}

}  // namespace

uint64_t NewPageNumber() {
  static std::atomic<uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

void EndPageNumber(uint64_t number) {
  Listeners& listeners = OfProcess();
  // Who has copied the page has listened since before it was given to them.
  if (listeners.count.load(std::memory_order_acquire) == 0) return;
  const std::shared_lock lock(listeners.mutex);
  for (const PageNumberListener* listener : listeners.all) {
    listener->on_end_(number);
  }
}

PageNumberListener::PageNumberListener(
    std::function<void(uint64_t number)> on_end)
    : on_end_(std::move(on_end)) {
  Listeners& listeners = OfProcess();
  const std::lock_guard lock(listeners.mutex);
  listeners.all.push_back(this);
  listeners.count = listeners.all.size();
}

PageNumberListener::~PageNumberListener() {
  Listeners& listeners = OfProcess();
  const std::lock_guard lock(listeners.mutex);
  listeners.all.erase(
      std::find(listeners.all.begin(), listeners.all.end(), this));
  listeners.count = listeners.all.size();
}

}  // namespace attention
