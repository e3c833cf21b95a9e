#include "client/python-engine/native/ending.h"

#include <cmath>

#include "absl/strings/str_cat.h"

namespace attention::python {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

absl::Status Deadline::Named(const absl::Status& status) const {
  if (!absl::IsCancelled(status)) return status;
  return absl::DeadlineExceededError(
      absl::StrCat("the call has not finished within ", seconds, " s"));
}

Deadline DeadlineOf(nanobind::handle timeout) {
  if (timeout.is_none()) return {};
  const auto seconds = nanobind::cast<double>(GetPython().seconds(timeout));
  const auto wait = std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(std::fmax(seconds, 0)));
  return {seconds, Clock::now() + wait};
}

void Ending::Watch(absl::Span<AttentionJob> jobs) {
  if (!deadline_.time && main_ == nullptr) return;
  for (AttentionJob& job : jobs) {
    job.stop = source_.get_token();
    job.before_tile = [this] { Look(); };
  }
}

void Ending::Look() {
  const Clock::time_point now = Clock::now();
  if (deadline_.time && now >= *deadline_.time) source_.request_stop();
  // Handlers run on the thread that has called, which computes as well.
  if (main_ == nullptr || std::this_thread::get_id() != caller_) return;
  // Now and then: it takes the interpreter's lock.
  if (now < next_look_ || is_interrupted_) return;
  next_look_ = now + kBetweenLooks;
  is_interrupted_ = main_->IsInterrupted();
  if (is_interrupted_) source_.request_stop();
}

}  // namespace attention::python
