// What becomes of jobs without memory.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "core/engine.h"
#include "tests/unit/core/counted_memory.h"
#include "tests/unit/core/zero_problem.h"

namespace attention {
namespace {

using testing::ZeroProblem;

// Whichever allocation fails, a job that was computed before is not touched.
TEST(WithoutMemoryTest, WhatIsComputedStays) {
  EngineOptions options;
  options.backend = "cpu";
  options.threads = 1;
  const auto engine = *Engine::Create(std::move(options));
  const WorkerPool::InPlace one_thread;
  bool failed = true;
  for (int64_t n = 1; failed; ++n) {
    ZeroProblem small({.name = "Small", .keys = 4});
    ZeroProblem large({.name = "Large", .queries = 300, .keys = 300});
    std::vector<AttentionJob> jobs = {small.job(), large.job()};
    jobs[0].outputs.output.data[0] = std::byte{1};
    testing::FailNewAt(n);
    engine->backends()[0]->Run(absl::MakeSpan(jobs), {engine->workers()});
    failed = testing::NewHasFailed();
    testing::FailNewAt(0);
    const bool computed = jobs[0].outputs.output.data[0] == std::byte{0};
    EXPECT_EQ(jobs[0].status.ok(), computed) << "allocation " << n;
    EXPECT_TRUE(failed || (computed && jobs[1].status.ok()));
  }
}

}  // namespace
}  // namespace attention
