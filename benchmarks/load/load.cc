#include "benchmarks/load/load.h"

#include <optional>
#include <utility>
#include <vector>

#include "benchmarks/load/calls.h"
#include "benchmarks/load/pacer.h"
#include "benchmarks/load/samples.h"

namespace attention::bench {
namespace {

using Seconds = std::chrono::duration<double>;

class LoadRun {
 public:
  LoadRun(const LoadOptions& options, const LoadShape& shape, const Api& api)
      : options_(options),
        samples_(shape.CallBytes()),
        calls_((options.stream ? MakeStreamCalls : MakeUnaryCalls)(
            options.server, queue_, api, options.in_flight)),
        due_(static_cast<size_t>(options.in_flight)) {
    for (int slot = options.in_flight; slot > 0; --slot) {
      free_.push_back(slot - 1);
    }
  }
  LoadRun(const LoadRun&) = delete;
  LoadRun& operator=(const LoadRun&) = delete;
  ~LoadRun() {
    StopPacer();
    if (free_.size() < due_.size()) calls_->Cancel();
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) {
    }
  }

  absl::StatusOr<nlohmann::json> Run() {
    const auto begin = Clock::now();
    measure_from_ = begin + ToDuration(options_.warm_up_seconds);
    const auto end = measure_from_ + ToDuration(options_.seconds);
    next_due_ = begin;
    if (options_.rate > 0) {
      pacer_.emplace(queue_, begin, ToDuration(1 / options_.rate));
    }
    while (Clock::now() < end) {
      StartWhatIsDue();
      HandleEvent(end);
      if (over_) return error_;
    }
    const auto measured = Clock::now() - measure_from_;
    StopPacer();
    while (free_.size() < due_.size() && !over_) {
      HandleEvent(Clock::now() + kPatience);
    }
    if (over_) return error_;
    calls_->Close();
    if (samples_.empty()) return error_;
    return samples_.ToJson(measured);
  }

 private:
  static constexpr auto kPatience = std::chrono::seconds(60);

  static Clock::duration ToDuration(double seconds) {
    return std::chrono::duration_cast<Clock::duration>(Seconds(seconds));
  }

  // The event that it may leave is nobody's any more.
  void StopPacer() {
    if (pacer_) pacer_->Stop();
  }

  void StartWhatIsDue() {
    while (!free_.empty()) {
      const auto now = Clock::now();
      if (options_.rate > 0 && now < next_due_) return;
      const int slot = free_.back();
      free_.pop_back();
      const auto due = options_.rate > 0 ? next_due_ : now;
      due_[static_cast<size_t>(slot)] = due;
      if (options_.rate > 0) next_due_ += ToDuration(1 / options_.rate);
      calls_->Start(slot, Deadline(due - now));
    }
  }

  // Of a call that is due in `wait`, or was before now.
  std::chrono::system_clock::time_point Deadline(Clock::duration wait) const {
    if (options_.timeout_seconds <= 0) {
      return std::chrono::system_clock::time_point::max();
    }
    return std::chrono::system_clock::now() +
           std::chrono::duration_cast<std::chrono::microseconds>(
               wait + ToDuration(options_.timeout_seconds));
  }

  // Waits until `deadline` at most.
  void HandleEvent(Clock::time_point deadline) {
    const auto left = deadline - Clock::now();
    const auto wall =
        std::chrono::system_clock::now() +
        std::chrono::duration_cast<std::chrono::microseconds>(left);
    void* tag = nullptr;
    bool ok = false;
    if (queue_.AsyncNext(&tag, &ok, wall) !=
        grpc::CompletionQueue::NextStatus::GOT_EVENT) {
      return;
    }
    if (pacer_ && pacer_->Owns(tag)) return;
    const std::optional<Ended> ended = calls_->OnEvent(tag, ok);
    if (!ended) return;
    const auto now = Clock::now();
    if (ended->slot == kConnectionLost) {
      over_ = true;
      error_ = ended->reply.status();
      return;
    }
    free_.push_back(ended->slot);
    if (now < measure_from_) return;
    if (ended->reply.ok()) {
      samples_.Add(now - due_[static_cast<size_t>(ended->slot)],
                   ended->reply->compute, ended->reply->queue);
    } else {
      samples_.AddError(ended->reply.status().code());
      error_.Update(ended->reply.status());
    }
  }

  const LoadOptions options_;
  Samples samples_;
  grpc::CompletionQueue queue_;
  const std::unique_ptr<Calls> calls_;
  std::optional<Pacer> pacer_;          // of an open loop
  std::vector<Clock::time_point> due_;  // by slot
  std::vector<int> free_;
  Clock::time_point measure_from_;
  Clock::time_point next_due_;
  absl::Status error_;
  bool over_ = false;
};

}  // namespace

absl::StatusOr<nlohmann::json> RunLoad(const LoadOptions& options,
                                       const LoadShape& shape, const Api& api) {
  return LoadRun(options, shape, api).Run();
}

}  // namespace attention::bench
