#ifndef ATTENTION_SERVER_TELEMETRY_HISTOGRAM_H_
#define ATTENTION_SERVER_TELEMETRY_HISTOGRAM_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace attention::server {

/// Nanoseconds: 10 us to 5 min.
inline constexpr std::array<int64_t, 22> kTimeBounds = {
    10'000,         25'000,         50'000,         100'000,
    250'000,        500'000,        1'000'000,      2'500'000,
    5'000'000,      10'000'000,     25'000'000,     50'000'000,
    100'000'000,    250'000'000,    500'000'000,    1'000'000'000,
    2'500'000'000,  5'000'000'000,  10'000'000'000, 30'000'000'000,
    60'000'000'000, 300'000'000'000};

/// Counts of something.
inline constexpr std::array<int64_t, 9> kCountBounds = {1,  2,  4,   8,   16,
                                                        32, 64, 256, 1024};

/// How many values lie up to each of `kBounds`, and not up to the one before.
/// Its user keeps threads apart.
template <const auto& kBounds>
struct Histogram {
  std::array<uint64_t, std::size(kBounds) + 1> counts{};  // the last: beyond
  int64_t sum = 0;

  void Observe(int64_t value) {
    const auto bound = std::lower_bound(kBounds.begin(), kBounds.end(), value);
    ++counts[static_cast<size_t>(bound - kBounds.begin())];
    sum += value;
  }
};

using TimeHistogram = Histogram<kTimeBounds>;
using CountHistogram = Histogram<kCountBounds>;

}  // namespace attention::server

#endif  // ATTENTION_SERVER_TELEMETRY_HISTOGRAM_H_
