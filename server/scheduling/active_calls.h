#ifndef ATTENTION_SERVER_SCHEDULING_ACTIVE_CALLS_H_
#define ATTENTION_SERVER_SCHEDULING_ACTIVE_CALLS_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "server/transport/reply_watch.h"

namespace attention::server {

/// A call that a drain has to wait for. Its members may be called from any
/// thread and must not call back into ActiveCalls on it.
class DrainableCall {
 public:
  virtual ~DrainableCall() = default;
  /// The server drains: begin nothing new, end when what runs has ended.
  virtual void OnDrain() = 0;
  /// The drain time is over: stop what runs.
  virtual void OnDrainEnd() = 0;
  /// The callers file says otherwise than before.
  virtual void OnCallersChanged() {}
};

/// What is done about callers that do not behave; nothing by default. All get
/// what grpc::ServerContext::peer() says.
struct CallGuards {
  /// How long a caller may take to take a reply.
  std::chrono::milliseconds reply_timeout{60'000};
  /// OK, or what a stream that begins is refused with.
  std::function<absl::Status(const std::string& peer)> check_room =
      [](const std::string& /*peer*/) { return absl::OkStatus(); };
  /// Of a call that its caller has reset, and of one that only closing its
  /// connection can end.
  std::function<void(const std::string& peer)> note_reset =
      [](const std::string& /*peer*/) {};
  std::function<void(const std::string& peer)> close_connection =
      [](const std::string& /*peer*/) {};
};

/// The calls that the server has not finished yet, a unary one until its reply
/// is out and a stream until it has ended.
class ActiveCalls {
 public:
  explicit ActiveCalls(CallGuards guards = {})
      : guards_(std::move(guards)),
        replies_(guards_.reply_timeout, guards_.close_connection) {}

  /// Keeps `call` until Remove(); while draining it is told so at once.
  void Add(const std::shared_ptr<DrainableCall>& call);
  void Remove(const DrainableCall* call);

  /// While the result lives, the reply of a call of `peer` is on its way; the
  /// call is ended where that takes too long.
  ReplyWatch::Watch WatchReply(grpc_call* call, const std::string& peer) {
    return replies_.Begin(call, peer);
  }

  /// OK, or RESOURCE_EXHAUSTED where this peer has too many open calls for one
  /// more stream.
  absl::Status CheckRoom(const std::string& peer) const {
    return guards_.check_room(peer);
  }

  /// A call of this peer was reset by its caller.
  void NoteReset(const std::string& peer) const { guards_.note_reset(peer); }

  /// From now on the server is not ready any more. Calls are still served.
  void StartLeaving() { leaving_ = true; }
  bool leaving() const { return leaving_; }

  /// Tells every call; those that come later are told when they are added.
  void StartDrain();
  void EndDrain();

  /// Tells every call.
  void TellCallersChanged();

  /// True as soon as there is none, false where some are left at `deadline`.
  bool WaitUntilNone(std::chrono::steady_clock::time_point deadline);

 private:
  enum class Phase : uint8_t { kServing, kDraining, kEnding };

  // Tells calls what begins with the new phase.
  void Enter(Phase phase);
  // Without the lock, one after the other: a list of all would take memory.
  void ForEach(absl::FunctionRef<void(DrainableCall&)> tell);
  static void Tell(DrainableCall& call, Phase phase);

  const CallGuards guards_;
  ReplyWatch replies_;
  std::atomic<bool> leaving_{false};
  std::mutex mutex_;
  std::condition_variable none_;
  Phase phase_ = Phase::kServing;
  std::map<const DrainableCall*, std::shared_ptr<DrainableCall>> calls_;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_SCHEDULING_ACTIVE_CALLS_H_
