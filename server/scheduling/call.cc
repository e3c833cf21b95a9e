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
  return {peer, PartyOf(/*caller=*/nullptr, peer)};
}

void Call::Start(absl::FunctionRef<RequestArrival()> arrive, int64_t number) {
  std::shared_ptr<Task> task;
  Task::Done done;
  StopReason stopped = StopReason::kNone;
  const auto make = [&] {
    task = std::make_shared<Task>(services_, arrive());
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
  const absl::Status made = WithoutBadAlloc(make, OutOfMemoryForNow);
  if (!made.ok()) return RefuseAtStart(number, made);
  if (stopped != StopReason::kNone) task->Stop(stopped);
  task->Start(std::move(done));
}

void Call::RefuseAtStart(int64_t number, const absl::Status& status) {
  IfMemoryAllows([&] {
    RequestFacts facts;
    facts.operation = "request";
    facts.rpc = rpc_;
    facts.peer = origin_->peer;
    facts.status = status;
    facts.refused = true;
    facts.refusal = Refusal::kServerMemory;
    if (services_.metrics != nullptr) services_.metrics->NoteArrival(rpc_);
    Observe(facts, services_.metrics);
  });
  Task::Outcome outcome;
  outcome.status = status;
  Emit(number, std::move(outcome));
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
  while (true) {
    std::shared_ptr<Task> next;  // destroyed without the lock
    {
      const std::lock_guard lock(running_mutex_);
      if (stopped_ == StopReason::kNone) stopped_ = reason;
      // One at a time: a list of all would take memory.
      const auto found = absl::c_find_if(
          running_, [](const auto& task) { return !task->is_stopped(); });
      if (found == running_.end()) return;
      next = *found;
    }
    next->Stop(reason);
  }
}

void Call::Abandon() {
  IfMemoryAllows([this] {
    if (origin_->WasReset()) calls_.NoteReset(origin_->peer);
  });
  Stop(origin_->WhyCancelled());
}

}  // namespace attention::server
