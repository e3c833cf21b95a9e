#ifndef ATTENTION_SERVER_TRANSPORT_REPLY_WATCH_H_
#define ATTENTION_SERVER_TRANSPORT_REPLY_WATCH_H_

#include <grpc/grpc.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "server/telemetry/log_limit.h"

namespace attention::server {

/// Ends calls whose reply is not taken in time, on a thread of its own: a
/// caller that reads nothing would keep its places for as long as it likes.
class ReplyWatch {
  struct Entry;

 public:
  using Clock = std::chrono::steady_clock;

  /// `close_connection` gets what grpc::ServerContext::peer() says of a call
  /// that stays a second after it was cancelled: gRPC gives nothing back while
  /// the socket takes nothing.
  ReplyWatch(std::chrono::milliseconds timeout,
             std::function<void(const std::string& peer)> close_connection);
  /// No Watch is left by then.
  ~ReplyWatch();
  ReplyWatch(const ReplyWatch&) = delete;
  ReplyWatch& operator=(const ReplyWatch&) = delete;

  /// While it lives, a reply is on its way.
  class Watch {
   public:
    Watch() = default;
    Watch(Watch&& other) noexcept { *this = std::move(other); }
    Watch& operator=(Watch&& other) noexcept;
    ~Watch() { End(); }

    /// The reply is to be taken within a second from now, for a caller that is
    /// not served any more. Nothing where no reply is on its way.
    void Hurry();

   private:
    friend class ReplyWatch;
    void End();

    ReplyWatch* owner_ = nullptr;
    std::list<Entry>::iterator entry_;
  };

  /// From now on the reply of `call` is on its way. `peer` is what
  /// grpc::ServerContext::peer() says, which a cancelled call has forgotten.
  /// Nobody watches it where there is no memory for that.
  Watch Begin(grpc_call* call, const std::string& peer);

 private:
  struct Entry {
    grpc_call* call;  // with a reference of its own
    std::string peer;
    Clock::time_point due;
    bool cancelled = false;
  };

  void Run();
  void Hurry(std::list<Entry>::iterator entry);
  void CancelFirst(std::unique_lock<std::mutex>& lock);
  void CloseFirst(std::unique_lock<std::mutex>& lock);

  const std::chrono::milliseconds timeout_;
  const std::function<void(const std::string& peer)> close_connection_;
  LogLimit ended_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  // Each in the order in which they are due.
  std::list<Entry> waiting_;
  std::list<Entry> cancelled_;
  std::thread thread_;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_TRANSPORT_REPLY_WATCH_H_
