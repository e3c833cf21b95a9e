// Calls at the same time, in one kernel that wants different amounts of shared
// memory: what a launch asks for must not limit another's.

#include <atomic>
#include <chrono>
#include <cstddef>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/parity/backend_test.h"
#include "tests/support/random.h"

namespace attention::test {
namespace {

TEST(ConcurrentTest, MaskedAndPlainCallsGiveWhatTheyGiveAlone) {
  constexpr size_t kThreads = 8;
  // At most, of which a device does all and an emulated one as many as it can.
  constexpr int kRounds = 50;
  constexpr auto kLongEnough = std::chrono::seconds(2);
  const auto engine = MakeEngine(Backends()[0]);
  std::vector<OwnedProblem> problems;
  std::vector<Results> alone;
  for (const MaskExtents mask : {MaskExtents::kNone, MaskExtents::kAll}) {
    for (const MaskExtents bias : {MaskExtents::kNone, MaskExtents::kAll}) {
      ProblemSpec spec = {.query_length = 50,
                          .key_length = 200,
                          .width = 128,
                          .value_width = 120,
                          .type = DataType::kBFloat16};
      spec.softcap = 20;  // one instance for all
      spec.attend_mask = mask;
      spec.bias = bias;
      spec.wanted = {};
      problems.push_back(MakeProblem(spec, TestSeed()));
      ASSERT_OK_AND_ASSIGN(Results results,
                           RunOn(*engine, problems.back().problem));
      alone.push_back(std::move(results));
    }
  }
  std::atomic<int> wrong = 0;
  const auto enough = std::chrono::steady_clock::now() + kLongEnough;
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < kRounds; ++round) {
        const size_t n = (t + static_cast<size_t>(round)) % problems.size();
        const auto results = RunOn(*engine, problems[n].problem);
        if (!results.ok() || !SameBits(*results, alone[n])) ++wrong;
        if (std::chrono::steady_clock::now() > enough) return;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace attention::test
