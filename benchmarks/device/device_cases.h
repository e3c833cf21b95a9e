#ifndef ATTENTION_BENCHMARKS_DEVICE_DEVICE_CASES_H_
#define ATTENTION_BENCHMARKS_DEVICE_DEVICE_CASES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "benchmarks/shape.h"

namespace attention::bench {

/// What is measured on a device, what matters most first.
std::vector<Case> DeviceCases();

/// The case with lengths of `longest` at most; 0 leaves it as it is. For trials
/// on a device that is emulated.
Case Shortened(Case shape, int64_t longest);

/// "BF16 H16 Lq4096 Lk4096 D128 causal": what sets a case apart, in words.
std::string DeviceName(const Case& shape);

/// Floating-point operations of the pairs that causal rule and window leave, as
/// others count them: 4 D for each.
double DeviceFlops(const Case& shape);

}  // namespace attention::bench

#endif  // ATTENTION_BENCHMARKS_DEVICE_DEVICE_CASES_H_
