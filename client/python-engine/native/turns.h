#ifndef ATTENTION_CLIENT_PYTHON_ENGINE_NATIVE_TURNS_H_
#define ATTENTION_CLIENT_PYTHON_ENGINE_NATIVE_TURNS_H_

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "absl/functional/function_ref.h"

namespace attention::python {

/// How often a call that waits or computes looks whether it is to end.
inline constexpr std::chrono::milliseconds kBetweenLooks{50};

/// Lets so many calls of an engine compute at once.
class Turns {
 public:
  explicit Turns(int calls) : free_(calls) {}

 private:
  friend class Turn;

  std::mutex mutex_;
  std::condition_variable freed_;
  int free_;
};

/// The turn of a call, while it lives. A call of the same engine that the
/// handler of a signal makes meanwhile, on the same thread, is part of it: it
/// would wait for one that waits for it.
class Turn {
 public:
  /// Waits for it as long as `goes_on`, asked between looks, is true.
  Turn(Turns& turns, absl::FunctionRef<bool()> goes_on);
  ~Turn();
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  bool has_come() const { return has_come_; }

 private:
  // Whether it, or one around it, is a turn of these.
  bool IsWithin(const Turns& turns) const;

  Turns& turns_;
  Turn* const outer_;  // this thread's, of whichever engine; or null
  const bool is_nested_;
  bool has_come_;
};

}  // namespace attention::python

#endif  // ATTENTION_CLIENT_PYTHON_ENGINE_NATIVE_TURNS_H_
