#include "benchmarks/machine_limits.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#include "core/tensor.h"

#if defined(__x86_64__)
#define HWY_BASELINE_TARGETS HWY_SSE4
#define HWY_DISABLED_TARGETS HWY_SSSE3
#elif defined(__aarch64__)
// As the kernels that are measured.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "benchmarks/machine_limits.cc"
// clang-format off
#include "hwy/foreach_target.h"  // must come before all that follow
// clang-format on
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace attention::bench::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

double MultiplyAddsOf(int64_t rounds, float* sink) {
  const hn::ScalableTag<float> d;
  // Ten chains: two units with a latency of four or five. They start apart, or
  // the compiler would see that they are one.
  auto a0 = hn::Set(d, 1.0F), a1 = hn::Set(d, 1.1F), a2 = hn::Set(d, 1.2F);
  auto a3 = hn::Set(d, 1.3F), a4 = hn::Set(d, 1.4F), a5 = hn::Set(d, 1.5F);
  auto a6 = hn::Set(d, 1.6F), a7 = hn::Set(d, 1.7F), a8 = hn::Set(d, 1.8F);
  auto a9 = hn::Set(d, 1.9F);
  const auto x = hn::Set(d, 0.999F);
  const auto y = hn::Set(d, 0.001F);
  for (int64_t n = 0; n < rounds; ++n) {
    a0 = hn::MulAdd(a0, x, y);
    a1 = hn::MulAdd(a1, x, y);
    a2 = hn::MulAdd(a2, x, y);
    a3 = hn::MulAdd(a3, x, y);
    a4 = hn::MulAdd(a4, x, y);
    a5 = hn::MulAdd(a5, x, y);
    a6 = hn::MulAdd(a6, x, y);
    a7 = hn::MulAdd(a7, x, y);
    a8 = hn::MulAdd(a8, x, y);
    a9 = hn::MulAdd(a9, x, y);
  }
  const auto sum = hn::Add(
      hn::Add(hn::Add(hn::Add(a0, a1), hn::Add(a2, a3)), hn::Add(a4, a5)),
      hn::Add(hn::Add(a6, a7), hn::Add(a8, a9)));
  *sink = hn::GetLane(hn::SumOfLanes(d, sum));
  return 2.0 * 10.0 * static_cast<double>(rounds) *
         static_cast<double>(hn::Lanes(d));
}

void ReadAllOf(const float* data, int64_t count, float* sink) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto a = hn::Zero(d), b = a, c = a, e = a;
  int64_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    a = hn::Max(a, hn::LoadU(d, data + i));
    b = hn::Max(b, hn::LoadU(d, data + i + lanes));
    c = hn::Max(c, hn::LoadU(d, data + i + 2 * lanes));
    e = hn::Max(e, hn::LoadU(d, data + i + 3 * lanes));
  }
  *sink = hn::GetLane(hn::MaxOfLanes(d, hn::Max(hn::Max(a, b), hn::Max(c, e))));
}

const char* TargetNameOf() { return hwy::TargetName(HWY_TARGET); }

}  // namespace attention::bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attention::bench {

HWY_EXPORT(MultiplyAddsOf);
HWY_EXPORT(ReadAllOf);
HWY_EXPORT(TargetNameOf);

namespace {

using Clock = std::chrono::steady_clock;

// The highest work per second of several stretches of `work` on all threads at
// once; `work(thread)` returns how much it did.
template <typename Work>
double BestRate(int threads, double seconds, const Work& work) {
  double best = 0;
  const Clock::time_point begin = Clock::now();
  std::chrono::duration<double> elapsed{};
  do {
    std::vector<double> done(static_cast<size_t>(threads));
    const Clock::time_point start = Clock::now();
    std::vector<std::thread> others;
    for (int t = 1; t < threads; ++t) {
      others.emplace_back([&, t] { done[static_cast<size_t>(t)] = work(t); });
    }
    done[0] = work(0);
    for (std::thread& other : others) other.join();
    const std::chrono::duration<double> stretch = Clock::now() - start;
    double sum = 0;
    for (const double one : done) sum += one;
    best = std::max(best, sum / stretch.count());
    elapsed = Clock::now() - begin;
  } while (elapsed.count() < seconds);
  return best;
}

// Where results go that nobody needs, so that none is left out.
volatile float g_sink;

}  // namespace

double PeakFlops(int threads, double seconds) {
  return BestRate(threads, seconds, [](int) {
    constexpr int64_t kRounds = 2000000;  // some 15 ms: long beside a thread
    float sink = 0;
    const double flops = HWY_DYNAMIC_DISPATCH(MultiplyAddsOf)(kRounds, &sink);
    g_sink = sink;
    return flops;
  });
}

double ReadRate(int threads, double seconds) {
  constexpr int64_t kFloats = int64_t{1} << 28;  // 1 GiB: more than caches hold
  // Memory as inputs have it: in huge pages, if the system has them.
  static const Tensor data =
      *Tensor::Create(DataType::kFloat32, Shape{kFloats});
  const auto* first = reinterpret_cast<const float*>(data.data());
  return BestRate(threads, seconds, [threads, first](int thread) {
    const int64_t share = kFloats / threads;
    float sink = 0;
    HWY_DYNAMIC_DISPATCH(ReadAllOf)(first + thread * share, share, &sink);
    g_sink = sink;
    return static_cast<double>(share) * sizeof(float);
  });
}

const char* LimitsTarget() { return HWY_DYNAMIC_DISPATCH(TargetNameOf)(); }

}  // namespace attention::bench
#endif  // HWY_ONCE
