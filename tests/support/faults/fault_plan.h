#ifndef ATTENTION_TESTS_SUPPORT_FAULTS_FAULT_PLAN_H_
#define ATTENTION_TESTS_SUPPORT_FAULTS_FAULT_PLAN_H_

#include <atomic>
#include <cstdint>

namespace attention::test {

/// The variable that names the file with the plan.
inline constexpr char kFaultPlanVariable[] = "FAULT_PLAN";

/// Which calls of one kind fail: `skip` more succeed, then `fail` fail, then
/// all succeed again.
struct Faults {
  std::atomic<int64_t> skip{0};
  std::atomic<int64_t> fail{0};
  std::atomic<int64_t> failed{0};  // so far

  /// Whether the call that asks is one of those.
  bool Next() {
    if (fail.load() <= 0) return false;
    if (skip.fetch_sub(1) > 0 || fail.fetch_sub(1) <= 0) return false;
    ++failed;
    return true;
  }
};

/// In memory that a test and the process with the faults share (a file that
/// both map), so that the test says what fails next while the process runs.
struct FaultPlan {
  std::atomic<int64_t> large_bytes{0};  // what makes an allocation large
  Faults large_allocations;
  Faults threads;
  Faults syncs;  // of files: they never return
  // Not 0: those that gRPC makes never fail. Its executor gives work to threads
  // that it could not make, and calls then wait for ever.
  std::atomic<int64_t> spare_grpc{0};
};
static_assert(std::atomic<int64_t>::is_always_lock_free);

}  // namespace attention::test

#endif  // ATTENTION_TESTS_SUPPORT_FAULTS_FAULT_PLAN_H_
