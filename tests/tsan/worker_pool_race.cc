// A program for the thread sanitizer. `worker_pool_race planted` has two
// threads of the pool increment a plain integer, which must be reported;
// `worker_pool_race none` does the same with an atomic one, and nothing else in
// it may be reported.
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <latch>
#include <numeric>
#include <stop_token>
#include <string>
#include <vector>

#include "core/worker_pool.h"

namespace attention {
namespace {

// Two threads at once add to one counter.
template <typename Counter>
int64_t CountTogether(WorkerPool& pool) {
  Counter counter{0};
  std::latch both(2);  // each call on a thread of its own
  pool.ParallelFor(2, std::stop_token(), [&](int64_t) {
    both.arrive_and_wait();
    for (int i = 0; i < 1000; ++i) ++counter;
  });
  return counter;
}

// Plain memory handed to the calls and back: the order that ParallelFor
// promises.
bool SquaresAreRight(WorkerPool& pool) {
  constexpr int64_t kCount = 1000;
  std::vector<int64_t> values(kCount);
  std::iota(values.begin(), values.end(), 0);
  pool.ParallelFor(kCount, std::stop_token(),
                   [&](int64_t i) { values[static_cast<size_t>(i)] *= i; });
  for (int64_t i = 0; i < kCount; ++i) {
    if (values[static_cast<size_t>(i)] != i * i) return false;
  }
  return true;
}

// Plain memory handed to a posted task, which runs a loop of its own, and back.
bool PostedTaskIsRight(WorkerPool& pool) {
  int64_t request = 41;
  bool squares = false;
  std::latch done(1);
  pool.Post([&] {
    squares = SquaresAreRight(pool);
    ++request;
    done.count_down();
  });
  done.wait();
  return squares && request == 42;
}

int Main(const std::string& race) {
  WorkerPool pool(4);
  if (race == "planted") {
    // The count itself may come out wrong; the report is what matters.
    std::printf("counted %lld\n",
                static_cast<long long>(CountTogether<int64_t>(pool)));
    return 0;
  }
  for (int round = 0; round < 100; ++round) {
    if (CountTogether<std::atomic<int64_t>>(pool) != 2000 ||
        !SquaresAreRight(pool) || !PostedTaskIsRight(pool)) {
      std::puts("wrong result");
      return 1;
    }
  }
  return 0;
}

}  // namespace
}  // namespace attention

int main(int argc, char** argv) {
  return attention::Main(argc > 1 ? argv[1] : "none");
}
