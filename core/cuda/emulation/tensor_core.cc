#include "core/cuda/emulation/tensor_core.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace attention::cuda {
namespace {

constexpr int kKeptBits = 24;

// Products of FP32 numbers are far from where FP64's exponents end.
constexpr int kExponentBias = 1023;
constexpr int kExponentPlace = 52;

int ExponentOf(double positive) {
  return static_cast<int>(std::bit_cast<uint64_t>(positive) >> kExponentPlace) -
         kExponentBias;
}
double PowerOfTwo(int exponent) {
  return std::bit_cast<double>(static_cast<uint64_t>(exponent + kExponentBias)
                               << kExponentPlace);
}

float CutOff(double value) {
  const auto nearest = static_cast<float>(value);
  const bool is_beyond = std::abs(double{nearest}) > std::abs(value);
  if (!is_beyond || std::isinf(nearest)) return nearest;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(nearest) - 1);
}

}  // namespace

float AddProducts(float c, const float* a, const float* b) {
  double terms[kTensorCoreBlock + 1];
  double plain = c;
  double largest = std::abs(double{c});
  for (int k = 0; k < kTensorCoreBlock; ++k) {
    terms[k] = static_cast<double>(a[k]) * b[k];
    plain += terms[k];
    largest = std::max(largest, std::abs(terms[k]));
  }
  terms[kTensorCoreBlock] = c;
  if (largest == 0 || !std::isfinite(plain)) return static_cast<float>(plain);
  const int unit = ExponentOf(largest) - kKeptBits;
  int64_t sum = 0;
  for (const double term : terms) {
    sum += static_cast<int64_t>(term * PowerOfTwo(-unit));
  }
  return CutOff(static_cast<double>(sum) * PowerOfTwo(unit));
}

}  // namespace attention::cuda
