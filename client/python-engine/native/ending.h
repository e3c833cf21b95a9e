#ifndef ATTENTION_CLIENT_PYTHON_ENGINE_NATIVE_ENDING_H_
#define ATTENTION_CLIENT_PYTHON_ENGINE_NATIVE_ENDING_H_

#include <nanobind/nanobind.h>

#include <chrono>
#include <optional>
#include <stop_token>
#include <thread>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "client/python-engine/native/python.h"
#include "client/python-engine/native/turns.h"
#include "core/backend.h"

/// How calls end early: at their timeout, and by Ctrl-C.
namespace attention::python {

struct Deadline {
  double seconds = 0;  // as they were given
  std::optional<std::chrono::steady_clock::time_point> time;  // none: no end

  bool HasPassed() const {
    return time && std::chrono::steady_clock::now() >= *time;
  }
  /// DEADLINE_EXCEEDED in place of CANCELLED; other statuses as they are.
  absl::Status Named(const absl::Status& status) const;
};

/// Of seconds from now on, or None. InvalidArgumentError for what is no number.
Deadline DeadlineOf(nanobind::handle timeout);

/// Ends what runs: at a deadline, and where the handler of a signal raises. To
/// be asked now and then, from any thread, and while a call waits.
class Ending {
 public:
  /// `main`: what the caller lets the interpreter go with, if signals are to be
  /// looked for; null on threads that have none.
  Ending(const Deadline& deadline, WithoutInterpreter* main)
      : deadline_(deadline), main_(main) {}

  /// Stops jobs, before their next tile.
  void Watch(absl::Span<AttentionJob> jobs);

  bool GoesOn() {
    Look();
    return !source_.stop_requested();
  }
  bool is_interrupted() const { return is_interrupted_; }

 private:
  void Look();

  const Deadline& deadline_;
  WithoutInterpreter* const main_;
  const std::thread::id caller_ = std::this_thread::get_id();
  std::stop_source source_;
  // Of the caller's thread alone.
  std::chrono::steady_clock::time_point next_look_ =
      std::chrono::steady_clock::now() + kBetweenLooks;
  bool is_interrupted_ = false;
};

/// What `work`, given an Ending, returns while others may have the interpreter:
/// CANCELLED where it was to end. Throws what the handler of a signal has
/// raised meanwhile.
template <typename Work>
auto WithEnding(const Deadline& deadline, const Work& work) {
  const bool is_main = IsMainThread();
  bool is_interrupted = false;
  auto result = [&] {
    WithoutInterpreter without;
    Ending ending(deadline, is_main ? &without : nullptr);
    auto returned = work(ending);
    is_interrupted = ending.is_interrupted();
    return returned;
  }();
  if (is_interrupted) throw nanobind::python_error();
  return result;
}

}  // namespace attention::python

#endif  // ATTENTION_CLIENT_PYTHON_ENGINE_NATIVE_ENDING_H_
