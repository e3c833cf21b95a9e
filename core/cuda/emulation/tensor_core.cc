#include "core/cuda/emulation/tensor_core.h"

#include <cmath>
#include <cstdint>

namespace attention::cuda {
namespace {

constexpr int kKeptBits = 24;

float CutOff(double value) {
  const auto nearest = static_cast<float>(value);
  const bool is_beyond = std::abs(double{nearest}) > std::abs(value);
  if (!is_beyond || std::isinf(nearest)) return nearest;
  return std::nextafter(nearest, 0.0F);
}

}  // namespace

float AddProducts(float c, const float* a, const float* b) {
  double terms[kTensorCoreBlock + 1];
  double plain = c;
  double largest = std::abs(double{c});
  for (int k = 0; k < kTensorCoreBlock; ++k) {
    terms[k] = static_cast<double>(a[k]) * b[k];
    plain += terms[k];
    largest = std::fmax(largest, std::abs(terms[k]));
  }
  terms[kTensorCoreBlock] = c;
  if (largest == 0 || !std::isfinite(plain)) return static_cast<float>(plain);
  const double unit = std::ldexp(1.0, std::ilogb(largest) - kKeptBits);
  int64_t sum = 0;
  for (const double term : terms) sum += static_cast<int64_t>(term / unit);
  return CutOff(static_cast<double>(sum) * unit);
}

}  // namespace attention::cuda
