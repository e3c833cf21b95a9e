#include "server/scheduling/cost_model.h"

#include <algorithm>
#include <cmath>

namespace attention::server {
namespace {

// Nanoseconds of a multiply-add where nothing was measured yet: those of a fast
// core with AVX-512.
constexpr double kFirstGuess = 0.01;
// How much the latest request counts.
constexpr double kNewShare = 0.2;
constexpr double kLongest = 1e18;  // nanoseconds, some 30 years

}  // namespace

int CostModel::SizeOf(const Work& work) {
  const double octave = std::log2(std::max(work.amount, 1.0)) / 3;
  return static_cast<int>(std::min(octave, kSizes - 1.0));
}

size_t CostModel::KindOf(const Work& work) {
  return static_cast<size_t>(std::clamp(work.kind, 0, Work::kKinds - 1));
}

std::chrono::nanoseconds CostModel::Estimate(const Work& work) const {
  const Rates& rates = rates_[KindOf(work)];
  const int size = SizeOf(work);
  double rate = 0;
  // The nearest size that was measured.
  for (int distance = 0; distance < kSizes && rate == 0; ++distance) {
    for (const int near : {size - distance, size + distance}) {
      if (rate == 0 && near >= 0 && near < kSizes) {
        rate = rates[static_cast<size_t>(near)].load(std::memory_order_relaxed);
      }
    }
  }
  if (rate == 0) rate = kFirstGuess;
  return std::chrono::nanoseconds(
      static_cast<int64_t>(std::min(work.amount * rate, kLongest)));
}

void CostModel::Learn(const Work& work, std::chrono::nanoseconds thread_time) {
  if (work.amount <= 0 || thread_time.count() <= 0) return;
  auto& rate = rates_[KindOf(work)][static_cast<size_t>(SizeOf(work))];
  const double measured =
      static_cast<double>(thread_time.count()) / work.amount;
  const double before = rate.load(std::memory_order_relaxed);
  // Two threads that do this at a time lose one of two measurements.
  rate.store(before == 0 ? measured : before + kNewShare * (measured - before),
             std::memory_order_relaxed);
}

}  // namespace attention::server
