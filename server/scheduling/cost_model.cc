#include "server/scheduling/cost_model.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace attention::server {
namespace {

// Nanoseconds of a multiply-add where nothing was measured yet: those of a fast
// core with AVX-512.
constexpr double kFirstGuess = 0.01;
constexpr double kLongest = 1e18;  // nanoseconds, some 30 years

// The lower one of an even number: one of two callers does not make the other
// look slow.
double Median(double* values, size_t count) {
  const size_t middle = (count - 1) / 2;
  std::nth_element(values, values + middle, values + count);
  return values[middle];
}

}  // namespace

int CostModel::SizeOf(const Work& work) {
  const double octave = std::log2(std::max(work.amount, 1.0)) / 3;
  return static_cast<int>(std::min(octave, kSizes - 1.0));
}

size_t CostModel::KindOf(const Work& work) {
  return static_cast<size_t>(std::clamp(work.kind, 0, Work::kKinds - 1));
}

std::chrono::nanoseconds CostModel::Estimate(const Work& work) const {
  const auto& rates = rates_[KindOf(work)];
  const int size = SizeOf(work);
  double rate = 0;
  // The nearest size that was measured.
  for (int distance = 0; distance < kSizes && rate == 0; ++distance) {
    for (const int near : {size - distance, size + distance}) {
      if (rate == 0 && near >= 0 && near < kSizes) {
        rate = rates[static_cast<size_t>(near)].median.load(
            std::memory_order_relaxed);
      }
    }
  }
  if (rate == 0) rate = kFirstGuess;
  return std::chrono::nanoseconds(
      static_cast<int64_t>(std::min(work.amount * rate, kLongest)));
}

// That of the caller, or the place of the one who was not heard of for longest.
CostModel::OfCaller& CostModel::Find(Rate& rate, size_t name) {
  std::vector<OfCaller>& callers = rate.callers;
  const auto found =
      std::find_if(callers.begin(), callers.end(),
                   [name](const OfCaller& of) { return of.name == name; });
  if (found != callers.end()) return *found;
  if (callers.size() < kCallers) return callers.emplace_back(OfCaller{name});
  OfCaller& oldest = *std::min_element(
      callers.begin(), callers.end(),
      [](const auto& a, const auto& b) { return a.learnt < b.learnt; });
  oldest = OfCaller{name};
  return oldest;
}

void CostModel::Learn(const Work& work, std::chrono::nanoseconds thread_time,
                      const std::string& caller) {
  if (work.amount <= 0 || thread_time.count() <= 0) return;
  Rate& rate = rates_[KindOf(work)][static_cast<size_t>(SizeOf(work))];
  const std::lock_guard lock(mutex_);
  OfCaller& of = Find(rate, std::hash<std::string>()(caller));
  of.latest[of.count++ % kLatest] =
      static_cast<double>(thread_time.count()) / work.amount;
  of.learnt = ++learnt_;
  std::array<double, kLatest> latest = of.latest;
  of.median = Median(latest.data(), std::min(of.count, kLatest));

  std::array<double, kCallers> medians{};
  std::transform(rate.callers.begin(), rate.callers.end(), medians.begin(),
                 [](const OfCaller& each) { return each.median; });
  rate.median.store(Median(medians.data(), rate.callers.size()),
                    std::memory_order_relaxed);
}

}  // namespace attention::server
