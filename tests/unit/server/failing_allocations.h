#ifndef ATTENTION_TESTS_UNIT_SERVER_FAILING_ALLOCATIONS_H_
#define ATTENTION_TESTS_UNIT_SERVER_FAILING_ALLOCATIONS_H_

#include <cstdint>
#include <functional>

#include "server/request/operation.h"

namespace attention::server {

/// What came of an act: it found all its memory, or one allocation failed,
/// which it threw or not.
enum class Came : uint8_t { kToItsEnd, kToItsEndWithout, kOut };

/// Of the allocations that this thread makes from now on, that of `number`
/// fails, counted from 0. Below 0: none.
void FailAllocation(int64_t number);

/// None fails any more. kToItsEndWithout where one has.
Came EndFailing();

/// `act`, where the allocation of that number fails, if there are so many.
Came WithoutAllocation(int64_t number, const std::function<void()>& act);

/// Calls act(n) for each of its allocations and once more, where none fails.
/// Twice, for some are made once and shift those behind them.
void ForEachAllocation(const std::function<Came(int64_t number)>& act);

/// Does nothing, in a turn unless it is quick; messages of many bytes are
/// decoded in one, too.
class Nothing : public Operation {
 public:
  explicit Nothing(bool quick = false) : quick_(quick) {}

  const char* name() const override { return "nothing"; }
  Work DecodingWork(int64_t message_bytes) const override {
    if (message_bytes <= 16) return {};
    return {Work::kDecodeJson, static_cast<double>(message_bytes)};
  }
  absl::Status Decode(ReceivedMessage, HoldBytes, RequestFacts&) override {
    return absl::OkStatus();
  }
  absl::StatusOr<OperationNeeds> Plan(RequestFacts&) override {
    return OperationNeeds{.work = {0, 1000}, .quick = quick_};
  }
  void Gather(WorkerPool*) override {}
  absl::Status Run(const std::stop_token&, const Pauses&,
                   RequestFacts&) override {
    return absl::OkStatus();
  }
  absl::StatusOr<ReplyBuffer> Encode(RequestFacts&) override {
    return ReplyBuffer();
  }

 private:
  const bool quick_;
};

}  // namespace attention::server

#endif  // ATTENTION_TESTS_UNIT_SERVER_FAILING_ALLOCATIONS_H_
