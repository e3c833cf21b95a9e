// What a server with "auto" does at its start: the self check in a process of
// its own, and the measuring of costs. Before all else on a new machine: it
// finds what hangs or faults, within a time.

#include <chrono>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "core/engine.h"
#include "gtest/gtest.h"

namespace attention::test {
namespace {

TEST(StartTest, AutoUsesTheDevicesAndAllTheirKernels) {
  EngineOptions options;
  options.self_check_patience = std::chrono::seconds(50);
  const std::unique_ptr<Engine> engine =
      Engine::Create(std::move(options)).value();
  for (const UnusedBackend& unused : engine->unused()) {
    std::cout << "found: " << unused.name << ": " << unused.reason.message()
              << "\n";
    // Whether there is cuBLAS is the machine's affair.
    EXPECT_EQ(unused.name, "cuda's cublas_gemm");
  }
  const Backend& first = *engine->backends()[0];
  ASSERT_EQ(first.name(), "cuda");
  const std::optional<BackendCost> cost = engine->CostOf(first);
  ASSERT_TRUE(cost);
  std::cout << "found: " << first.instruction_set() << ": "
            << cost->of_problem / 1e3 << " us for a problem, "
            << cost->of_multiply_add * 1e3
            << " ns for a thousand multiply-adds, " << cost->of_byte * 1024
            << " ns for a KiB\n";
}

}  // namespace
}  // namespace attention::test
