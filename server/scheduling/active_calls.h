#ifndef ATTENTION_SERVER_SCHEDULING_ACTIVE_CALLS_H_
#define ATTENTION_SERVER_SCHEDULING_ACTIVE_CALLS_H_

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace attention::server {

/// A call that a drain has to wait for. Both members may be called from any
/// thread and must not call back into ActiveCalls on it.
class DrainableCall {
 public:
  virtual ~DrainableCall() = default;
  /// The server drains: begin nothing new, end when what runs has ended.
  virtual void OnDrain() = 0;
  /// The drain time is over: stop what runs.
  virtual void OnDrainEnd() = 0;
};

/// The calls that the server has not finished yet, a unary one until its reply
/// is out and a stream until it has ended.
class ActiveCalls {
 public:
  /// Keeps `call` until Remove(); while draining it is told so at once.
  void Add(const std::shared_ptr<DrainableCall>& call);
  void Remove(const DrainableCall* call);

  /// Tells every call; those that come later are told when they are added.
  void StartDrain();
  void EndDrain();

  /// True as soon as there is none, false where some are left at `deadline`.
  bool WaitUntilNone(std::chrono::steady_clock::time_point deadline);

 private:
  enum class Phase { kServing, kDraining, kEnding };

  // Tells calls what begins with the new phase, without the lock.
  void Enter(Phase phase);
  static void Tell(DrainableCall& call, Phase phase);

  std::mutex mutex_;
  std::condition_variable none_;
  Phase phase_ = Phase::kServing;
  std::unordered_map<const DrainableCall*, std::shared_ptr<DrainableCall>>
      calls_;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_SCHEDULING_ACTIVE_CALLS_H_
