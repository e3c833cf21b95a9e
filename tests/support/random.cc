#include "tests/support/random.h"

#include <cmath>
#include <cstdlib>
#include <numbers>
#include <string>

namespace attention::test {

double Random::Uniform() {
  return static_cast<double>(engine_() >> 11) * 0x1p-53;
}

int64_t Random::Below(int64_t count) {
  return static_cast<int64_t>(engine_() % static_cast<uint64_t>(count));
}

int64_t Random::Between(int64_t first, int64_t last) {
  return first + Below(last - first + 1);
}

double Random::Normal() {
  // Box and Muller; 1 - Uniform() is never 0.
  const double radius = std::sqrt(-2 * std::log(1 - Uniform()));
  return radius * std::cos(2 * std::numbers::pi * Uniform());
}

uint64_t TestSeed() {
  static const uint64_t kSeed = [] {
    const char* const text = std::getenv("ATTENTION_TEST_SEED");
    if (text == nullptr) return uint64_t{20170612};
    if (std::string(text) == "random") {
      return static_cast<uint64_t>(std::random_device()());
    }
    return static_cast<uint64_t>(std::strtoull(text, nullptr, 10));
  }();
  return kSeed;
}

}  // namespace attention::test
