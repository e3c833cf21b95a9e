#ifndef ATTENTION_SERVER_SCHEDULING_COST_MODEL_H_
#define ATTENTION_SERVER_SCHEDULING_COST_MODEL_H_

#include <array>
#include <atomic>
#include <chrono>

#include "server/request/operation.h"

namespace attention::server {

/// Says what a request will take before it runs: its work times what a unit of
/// work took of late in requests of its kind and about its size. May be used
/// from several threads at once.
class CostModel {
 public:
  /// Time of one thread. Where nothing is known of the kind yet, a guess that
  /// is rather too low: what is refused for its cost is never measured.
  std::chrono::nanoseconds Estimate(const Work& work) const;

  /// Such a request took so much time of one thread, or of several together.
  void Learn(const Work& work, std::chrono::nanoseconds thread_time);

 private:
  // Sizes are a factor of eight apart: small requests take more per unit.
  static constexpr int kSizes = 20;
  static int SizeOf(const Work& work);
  static size_t KindOf(const Work& work);

  // Nanoseconds per unit of work; 0 where nothing was measured.
  using Rates = std::array<std::atomic<double>, kSizes>;
  std::array<Rates, Work::kKinds> rates_{};
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_SCHEDULING_COST_MODEL_H_
