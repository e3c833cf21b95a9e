#include "tests/support/cpu_test_targets.h"

#include <deque>

#include "absl/strings/str_cat.h"
#include "core/cpu/cpu_backend.h"
#include "core/cpu/kernels/kernels.h"
#include "core/cpu/targets.h"
#include "tests/support/emulated_products.h"

namespace attention::test {
namespace {

struct TestTargets {
  // An instruction set for each width of vectors, the best one first.
  TestTargets() {
    for (const cpu::Kernels& kernels : cpu::Targets()) {
      if (kernels.bf16 != nullptr || kernels.lanes == last_lanes) continue;
      last_lanes = kernels.lanes;
      for (const cpu::Bf16Products* products :
           {&EmulatedAmx(), &EmulatedAvx512Bf16()}) {
        names.push_back(absl::StrCat(kernels.name, products->suffix));
        emulated.push_back(kernels);
        emulated.back().name = names.back().c_str();
        emulated.back().bf16 = products;
      }
    }
  }

  int64_t last_lanes = 0;
  std::deque<std::string> names;
  std::deque<cpu::Kernels> emulated;
};

const TestTargets& All() {
  static const auto& targets = *new TestTargets();
  return targets;
}

}  // namespace

std::vector<std::string> CpuTestTargets() {
  std::vector<std::string> names = CpuTargets();
  if (All().names.empty()) return names;
  names.push_back(All().names.front());
  names.push_back(All().names.back());
  return names;
}

std::vector<std::string> Bf16TestTargets() {
  std::vector<std::string> names;
  for (const cpu::Kernels& kernels : cpu::Targets()) {
    if (kernels.bf16 != nullptr) names.emplace_back(kernels.name);
  }
  names.insert(names.end(), All().names.begin(), All().names.end());
  return names;
}

std::unique_ptr<Backend> MakeCpuTestBackend(const std::string& target) {
  for (const cpu::Kernels& kernels : All().emulated) {
    if (target == kernels.name) return MakeCpuBackend(kernels);
  }
  return MakeCpuBackend(target).value();
}

}  // namespace attention::test
