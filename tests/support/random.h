#ifndef ATTENTION_TESTS_SUPPORT_RANDOM_H_
#define ATTENTION_TESTS_SUPPORT_RANDOM_H_

#include <cstdint>
#include <random>

namespace attention::test {

/// Random numbers that follow from a seed alone, with every standard library
/// (the standard's distributions do not promise that).
class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}

  /// In [0, 1).
  double Uniform();
  /// In [0, count); count > 0.
  int64_t Below(int64_t count);
  /// In [first, last].
  int64_t Between(int64_t first, int64_t last);
  bool Chance(double probability) { return Uniform() < probability; }
  /// Normally distributed, mean 0, variance 1.
  double Normal();

 private:
  std::mt19937_64 engine_;
};

/// What every random test starts from: the environment variable
/// ATTENTION_TEST_SEED (a number, or "random" for one that differs from run to
/// run), and a fixed number where it is not set.
uint64_t TestSeed();

}  // namespace attention::test

#endif  // ATTENTION_TESTS_SUPPORT_RANDOM_H_
