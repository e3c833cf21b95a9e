#ifndef ATTENTION_SERVER_SCHEDULING_COST_MODEL_H_
#define ATTENTION_SERVER_SCHEDULING_COST_MODEL_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "server/request/operation.h"

namespace attention::server {

/// Says what a request will take before it runs: its work times what a unit of
/// work took of late in requests of its kind and about its size. That is a
/// median over callers, of the median of what each one's latest took, so that
/// what one caller sends does not make others' requests look long. May be used
/// from several threads at once.
class CostModel {
 public:
  /// Time of one thread. Where nothing is known of the kind yet, a guess that
  /// is rather too low: what is refused for its cost is never measured.
  std::chrono::nanoseconds Estimate(const Work& work) const;

  /// Such a request of `caller` took so much time of one thread, or of several
  /// together.
  void Learn(const Work& work, std::chrono::nanoseconds thread_time,
             const std::string& caller);

 private:
  // Sizes are a factor of eight apart: small requests take more per unit.
  static constexpr int kSizes = 20;
  static constexpr size_t kCallers = 16;  // that were measured last
  static constexpr size_t kLatest = 5;    // measurements of one of them

  // Nanoseconds per unit of work.
  struct OfCaller {
    size_t name = 0;  // its hash
    std::array<double, kLatest> latest{};
    size_t count = 0;  // ever
    double median = 0;
    uint64_t learnt = 0;  // when
  };
  struct Rate {
    std::atomic<double> median{0};  // 0 where nothing was measured
    std::vector<OfCaller> callers;  // up to kCallers; guarded by mutex_
  };

  static int SizeOf(const Work& work);
  static size_t KindOf(const Work& work);
  OfCaller& Find(Rate& rate, size_t name);

  std::mutex mutex_;
  uint64_t learnt_ = 0;
  std::array<std::array<Rate, kSizes>, Work::kKinds> rates_{};
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_SCHEDULING_COST_MODEL_H_
