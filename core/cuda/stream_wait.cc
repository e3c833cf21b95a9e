#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/cuda/device.h"

namespace attention::cuda {
namespace {

using Clock = std::chrono::steady_clock;

// A small job is done in less, and would sleep for longer.
constexpr auto kAwake = std::chrono::microseconds(100);
// Sleep is so small a part of the time that has passed, and no longer than
// this: a large job's waiting takes next to no processor.
constexpr int kPart = 8;
constexpr auto kLongest = std::chrono::milliseconds(1);

void PauseAfter(Clock::duration waited) {
  if (waited < kAwake) {
    std::this_thread::yield();
  } else {
    std::this_thread::sleep_for(
        std::min<Clock::duration>(waited / kPart, kLongest));
  }
}

// Says when a device that was to stop has been waited for long enough.
class Patience {
 public:
  explicit Patience(const Watch& watch) : watch_(watch) {}

  // To be asked again and again.
  bool IsOver(Clock::time_point now) {
    const int64_t marks = watch_.marks == nullptr ? 0 : watch_.marks->load();
    const bool goes_on = !stopped_ || marks != marks_;
    if (!stopped_) stopped_ = now;
    if (goes_on) went_on_ = now;
    marks_ = marks;
    return (!goes_on && now - went_on_ >= watch_.grace) ||
           now - *stopped_ >= watch_.patience;
  }

 private:
  const Watch& watch_;
  std::optional<Clock::time_point> stopped_;
  Clock::time_point went_on_;
  int64_t marks_ = 0;
};

}  // namespace

void Stream::SetWatch(Watch watch) { watch_ = std::move(watch); }

absl::Status Stream::GiveUp() {
  given_up_ = true;
  const auto ms =
      std::chrono::duration_cast<std::chrono::milliseconds>(watch_.grace);
  Lose(absl::StrCat("the device is lost: its work did not end within ",
                    ms.count(), " ms after it was to stop"));
  return absl::CancelledError("stopped, and the device did not come back");
}

// CUDA's own waits have no end that a caller could set.
absl::Status Stream::Wait(int index) {
  const Clock::time_point begin = Clock::now();
  Patience patience(watch_);
  while (!given_up_) {
    const absl::StatusOr<bool> reached = Reached(index);
    if (!reached.ok()) return reached.status();
    if (*reached) {
      if (watch_.marks != nullptr) ++*watch_.marks;
      return absl::OkStatus();
    }
    const Clock::time_point now = Clock::now();
    if (watch_.look && now - begin >= kAwake) watch_.look();
    if (watch_.stop.stop_requested() && patience.IsOver(now)) return GiveUp();
    PauseAfter(now - begin);
  }
  return absl::CancelledError("stopped, and the device was given up");
}

absl::Status Stream::Synchronize() {
  if (given_up_) return Wait(kEndMark);
  absl::Status status = Mark(kEndMark);
  return status.ok() ? Wait(kEndMark) : status;
}

}  // namespace attention::cuda
