#ifndef ATTENTION_TESTS_SUPPORT_SPECIAL_NUMBERS_H_
#define ATTENTION_TESTS_SUPPORT_SPECIAL_NUMBERS_H_

#include <limits>

namespace attention::test {

inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline constexpr float kFloatNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kFloatInfinity = std::numeric_limits<float>::infinity();

}  // namespace attention::test

#endif  // ATTENTION_TESTS_SUPPORT_SPECIAL_NUMBERS_H_
