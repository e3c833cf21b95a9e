#ifndef ATTENTION_SERVER_SCHEDULING_CALL_H_
#define ATTENTION_SERVER_SCHEDULING_CALL_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "server/scheduling/active_calls.h"
#include "server/scheduling/task.h"

namespace attention::server {

/// One call that carries tensors, over whatever transport: it runs the requests
/// that come with it and stops them where the caller goes away, the deadline
/// passes or the server's drain time is over.
///
/// A transport's kind of call derives from it. It tells Start() what came, and
/// Stop() or Abandon() what became of the caller; Emit() is where replies go.
///
/// Lifetime: ActiveCalls keeps it from Join() to Leave(), and every request
/// until it was emitted.
class Call : public DrainableCall, public std::enable_shared_from_this<Call> {
 public:
  /// Metrics count with `rpc` those of its requests that do not begin.
  Call(const TaskServices& services, ActiveCalls& calls, Rpc rpc,
       CallOrigin origin)
      : services_(services),
        calls_(calls),
        rpc_(rpc),
        origin_(std::make_shared<const CallOrigin>(std::move(origin))) {}

  void OnDrain() override {}  // admission turns new requests away
  void OnDrainEnd() override { Stop(StopReason::kDraining); }

  /// Stops the requests that run, and those that are to come.
  void Stop(StopReason reason);

 protected:
  const CallOrigin& origin() const { return *origin_; }
  std::shared_ptr<const CallOrigin> origin_ptr() const { return origin_; }
  const TaskServices& services() const { return services_; }
  ActiveCalls& calls() const { return calls_; }

  void Join() { calls_.Add(shared_from_this()); }
  void Leave() { calls_.Remove(this); }

  /// Begins a request, which has a number among those of the call. `arrive`
  /// makes it, once; its origin is the call's, or with what has changed of its
  /// caller since it began. Throws nothing: where there is no memory to make
  /// it, it is refused.
  void Start(absl::FunctionRef<RequestArrival()> arrive, int64_t number = 0);

  /// Emits the outcome of a request that does not begin, for want of memory.
  void RefuseAtStart(int64_t number, const absl::Status& status);

  /// The outcome of a request, also where it did not begin: once for each, from
  /// within Start(), RefuseAtStart() or Stop(), or from a worker; of different
  /// requests also at the same time. Throws nothing.
  virtual void Emit(int64_t number, Task::Outcome outcome) = 0;

  /// The transport says that the call has been cancelled, by its caller or by
  /// its deadline.
  void Abandon();

 private:
  void Forget(const Task* task);

  const TaskServices services_;
  ActiveCalls& calls_;
  const Rpc rpc_;
  const std::shared_ptr<const CallOrigin> origin_;
  std::mutex running_mutex_;
  absl::InlinedVector<std::shared_ptr<Task>, 1> running_;
  StopReason stopped_ =
      StopReason::kNone;  // what new requests are told at once
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_SCHEDULING_CALL_H_
