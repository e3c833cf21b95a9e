// The cpu backend, on one of CpuTestTargets(), against the
// reference on problems made of bytes.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/fuzz/backend_comparison.h"
#include "tests/support/cpu_test_targets.h"
#include "tests/unit/cpu/target_runner.h"

namespace attention::test {
namespace {

// What the sanitizers compute in milliseconds.
constexpr int64_t kMostWork = 80'000;

// Kept from run to run: threads, and what the instruction sets are.
const std::vector<Variant>& Targets() {
  static auto* const targets = [] {
    auto* all = new std::vector<Variant>;
    for (const std::string& name : CpuTestTargets()) {
      const auto runner = std::make_shared<TargetRunner>(name);
      all->push_back({name, [runner](const AttentionProblem& problem) {
                        return runner->Run(problem);
                      }});
    }
    return all;
  }();
  return *targets;
}

}  // namespace
}  // namespace attention::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace test = attention::test;
  test::CompareWithReference({data, size}, test::kMostWork, test::Targets());
  return 0;
}
