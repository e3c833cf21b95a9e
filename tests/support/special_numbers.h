#ifndef ATTENTION_TESTS_SUPPORT_SPECIAL_NUMBERS_H_
#define ATTENTION_TESTS_SUPPORT_SPECIAL_NUMBERS_H_

#include <limits>

namespace attention::test {

/// In FP32, which becomes FP64 without a word.
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

}  // namespace attention::test

#endif  // ATTENTION_TESTS_SUPPORT_SPECIAL_NUMBERS_H_
