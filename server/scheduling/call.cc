#include "server/scheduling/call.h"

#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "server/base/out_of_memory.h"
#include "server/scheduling/retry_after.h"
#include "server/transport/peer.h"

namespace attention::server {

std::string PartyOf(const Caller* caller, const std::string& peer) {
  if (caller != nullptr) return caller->name;
  const std::optional<Peer> of = PeerOfCall(peer);
  return of ? of->address : peer;
}

FairQueue::Path CallOrigin::path() const {
  return {PartyOf(caller.get(), peer), peer};
}

Admission::Holder CallOrigin::holder() const {
  if (caller != nullptr) return {caller->name};
  FairQueue::Path of = path();
  return {std::move(of.connection), std::move(of.party)};
}

void Call::Start(std::shared_ptr<const CallOrigin> origin,
                 std::unique_ptr<Operation> operation, ReceivedMessage message,
                 int64_t number) {
  std::shared_ptr<Task> task;
  Task::Done done;
  StopReason stopped = StopReason::kNone;
  const auto make = [&] {
    task = std::make_shared<Task>(
        services_, RequestArrival{std::move(operation), std::move(message),
                                  std::move(origin)});
    done = [self = shared_from_this(), raw = task.get(),
            number](Task::Outcome outcome) {
      self->Forget(raw);
      self->Emit(number, std::move(outcome));
    };
    const std::lock_guard lock(running_mutex_);
    running_.push_back(task);
    stopped = stopped_;
    return absl::OkStatus();
  };
  Task::Outcome outcome;
  outcome.status = WithoutBadAlloc(make, OutOfMemoryForNow);
  if (!outcome.status.ok()) return Emit(number, std::move(outcome));
  if (stopped != StopReason::kNone) task->Stop(stopped);
  task->Start(std::move(done));
}

void Call::Forget(const Task* task) {
  std::shared_ptr<Task> last;  // destroyed after the lock is released
  const std::lock_guard lock(running_mutex_);
  const auto found = absl::c_find_if(
      running_, [task](const auto& running) { return running.get() == task; });
  std::swap(*found, running_.back());
  last = std::move(running_.back());
  running_.pop_back();
}

void Call::Stop(StopReason reason) {
  absl::InlinedVector<std::shared_ptr<Task>, 1> tasks;
  {
    const std::lock_guard lock(running_mutex_);
    if (stopped_ == StopReason::kNone) stopped_ = reason;
    tasks = running_;
  }
  for (const auto& task : tasks) task->Stop(reason);
}

void Call::Abandon() {
  if (origin_->WasReset()) calls_.NoteReset(origin_->peer);
  Stop(origin_->WhyCancelled());
}

}  // namespace attention::server
