#ifndef ATTENTION_SERVER_HTTP_PORT_HANDSHAKE_TURNS_H_
#define ATTENTION_SERVER_HTTP_PORT_HANDSHAKE_TURNS_H_

#include <boost/asio/execution_context.hpp>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>

namespace attention::server {

/// A thread for what handshakes compute: a caller who replays the first message
/// of one makes the server sign an answer each time. Addresses take turns, so
/// one with many handshakes holds up its own alone.
class HandshakeTurns {
 public:
  using Step = std::function<void()>;

  /// Throws std::system_error where there is no thread.
  HandshakeTurns();
  ~HandshakeTurns() { Stop(); }
  HandshakeTurns(const HandshakeTurns&) = delete;
  HandshakeTurns& operator=(const HandshakeTurns&) = delete;

  /// Has `step` run when it is the turn of `address`. From any thread. What a
  /// step throws ends that step alone; after Stop(), it is dropped.
  void Add(const std::string& address, Step step);
  /// Runs nothing more, and forgets what has not begun. Once, or again without
  /// effect.
  void Stop();

 private:
  void Run();
  Step Next();  // null: stopped

  std::mutex mutex_;
  std::condition_variable added_;
  bool stopped_ = false;
  std::unordered_map<std::string, std::deque<Step>> of_address_;  // none empty
  std::deque<std::string> turns_;                                 // its keys
  std::thread thread_;
};

/// The turns of one address, as an Asio executor (the Networking TS's kind) for
/// the handlers of `context`. It keeps the turns, and no work of theirs.
class HandshakeExecutor {
 public:
  HandshakeExecutor(std::shared_ptr<HandshakeTurns> turns, std::string address,
                    boost::asio::execution_context& context)
      : state_(std::make_shared<State>(
            State{std::move(turns), std::move(address)})),
        context_(&context) {}

  boost::asio::execution_context& context() const noexcept { return *context_; }
  void on_work_started() const noexcept {}
  void on_work_finished() const noexcept {}
  template <typename Function, typename Allocator>
  void dispatch(Function&& function, const Allocator& allocator) const {
    post(std::forward<Function>(function), allocator);
  }
  template <typename Function, typename Allocator>
  void defer(Function&& function, const Allocator& allocator) const {
    post(std::forward<Function>(function), allocator);
  }
  template <typename Function, typename Allocator>
  void post(Function&& function, const Allocator& /*allocator*/) const {
    // Asio's functions can be moved alone.
    auto kept = std::make_shared<std::decay_t<Function>>(
        std::forward<Function>(function));
    state_->turns->Add(state_->address,
                       [kept = std::move(kept)] { std::move (*kept)(); });
  }
  bool operator==(const HandshakeExecutor& other) const noexcept {
    return state_ == other.state_;
  }
  bool operator!=(const HandshakeExecutor& other) const noexcept {
    return state_ != other.state_;
  }

 private:
  struct State {
    std::shared_ptr<HandshakeTurns> turns;
    std::string address;
  };
  std::shared_ptr<const State> state_;
  boost::asio::execution_context* context_;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_HTTP_PORT_HANDSHAKE_TURNS_H_
