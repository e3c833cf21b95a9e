// The CUDA backend on an emulated device, as it is served or with the
// thresholds of small problems (tests/support/emulated_cuda.cc), against the
// reference on problems made of bytes.
#include <cstdint>
#include <memory>
#include <vector>

#include "core/engine.h"
#include "tests/fuzz/backend_comparison.h"
#include "tests/support/results.h"

namespace attention::test {
namespace {

// A fifth of the cpu's: an emulated block takes as long for one row as for all
// that it has threads for.
constexpr int64_t kMostWork = 16'000;

// Kept from run to run: the device's threads.
const std::vector<Variant>& Emulations() {
  static auto* const emulations = [] {
    auto* all = new std::vector<Variant>;
    for (const char* name : {"cuda_emulated", "cuda_emulated_small"}) {
      const std::shared_ptr<Engine> engine = MakeEngine(name, 1);
      all->push_back({name, [engine](const AttentionProblem& problem) {
                        return RunOn(*engine, problem);
                      }});
    }
    return all;
  }();
  return *emulations;
}

}  // namespace
}  // namespace attention::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace test = attention::test;
  test::CompareWithReference({data, size}, test::kMostWork, test::Emulations());
  return 0;
}
