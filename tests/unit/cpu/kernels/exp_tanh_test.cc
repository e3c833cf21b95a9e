// Elementary functions: math-inl.h, and exponentials of whole rows in
// project-inl.h.

#include <cmath>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/cpu/kernels/kernel_test.h"

namespace attention::cpu {
namespace {

class ExpTanhTest : public KernelTest {
 protected:
  using Function = void (*)(const float*, int64_t, float*);

  // Rounds the count up to what functions of all lanes take.
  static void Pad(Floats& x) { x.resize((x.size() + 63) / 64 * 64, 0.5F); }

  static Floats Apply(Function function, const Floats& x) {
    Floats result(x.size());
    function(x.data(), static_cast<int64_t>(x.size()), result.data());
    return result;
  }

  // The polynomial's own comment: with its roundings within 1.4 * 2^-24.
  // Without fused multiply-adds its last product, which is below 0.35, is
  // rounded by itself to 2^-26, and what comes before it a little more often.
  const double power_bound_ = (parts_.fuses ? 1.4 : 1.8) * kEps;

  // Numbers from first to last, and between them at random.
  Floats Between(double first, double last) {
    constexpr int kCount = 20000;
    Floats x;
    for (int i = 0; i <= kCount; ++i) {
      x.push_back(static_cast<float>(first + (last - first) * i / kCount));
      x.push_back(
          static_cast<float>(first + (last - first) * random_.Uniform()));
    }
    Pad(x);
    return x;
  }
};

TEST_P(ExpTanhTest, PowersOfTwoAreAsAccurateAsTheirPolynomial) {
  const Floats x = Between(-160, 127.4);
  const Floats found = Apply(parts_.exp2, x);
  for (size_t i = 0; i < x.size(); ++i) {
    const double expected = std::exp2(static_cast<double>(x[i]));
    // Below the normal numbers 0 is right, too: IsNear() has the room.
    ASSERT_TRUE(IsNear(expected, power_bound_ * expected, found[i])) << x[i];
  }
}

TEST_P(ExpTanhTest, PowersOfWholeNumbersAreExact) {
  Floats x;
  for (int n = -126; n <= 127; ++n) x.push_back(static_cast<float>(n));
  Pad(x);
  const Floats found = Apply(parts_.exp2, x);
  for (int n = -126; n <= 127; ++n) {
    EXPECT_EQ(found[static_cast<size_t>(n + 126)], std::ldexp(1.0F, n));
  }
}

TEST_P(ExpTanhTest, PowersOfSpecialNumbers) {
  Floats x = {-126.5F, -127, -149, -150, -1e10F, 128, 129, 1000, 1e30F};
  for (const float special : SpecialFloats()) x.push_back(special);
  Pad(x);
  const Floats found = Apply(parts_.exp2, x);
  for (size_t i = 0; i < x.size(); ++i) {
    const double expected = std::exp2(static_cast<double>(x[i]));
    EXPECT_TRUE(IsNear(expected, power_bound_ * expected, found[i])) << x[i];
  }
}

TEST_P(ExpTanhTest, PowersFourAtOnceAreTheSameBits) {
  Floats x = Between(-160, 130);
  for (const float special : SpecialFloats()) x.push_back(special);
  Pad(x);
  const Floats one = Apply(parts_.exp2, x);
  const Floats four = Apply(parts_.exp2_four, x);
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(BitsFrom(one[i]), BitsFrom(four[i])) << x[i];
  }
}

// Within 2 ulp, says its comment.
double TanhBound(double expected) {
  return 2 * std::ldexp(1.0, std::ilogb(expected) - 23);
}

TEST_P(ExpTanhTest, TanhIsWithinTwoUlp) {
  for (const double range : {0.01, 0.625, 0.64, 1.0, 11.0, 100.0}) {
    const Floats x = Between(-range, range);
    const Floats found = Apply(parts_.tanh, x);
    for (size_t i = 0; i < x.size(); ++i) {
      const double expected = std::tanh(static_cast<double>(x[i]));
      ASSERT_TRUE(
          IsNear(expected, expected == 0 ? 0 : TanhBound(expected), found[i]))
          << x[i];
    }
  }
}

TEST_P(ExpTanhTest, TanhOfSpecialNumbers) {
  Floats x = {0x1p-60F, -0x1p-60F, 0.625F, -0.625F, 10, -10, 1e10F};
  for (const float special : SpecialFloats()) x.push_back(special);
  Pad(x);
  const Floats found = Apply(parts_.tanh, x);
  for (size_t i = 0; i < x.size(); ++i) {
    const double expected = std::tanh(static_cast<double>(x[i]));
    EXPECT_TRUE(IsNear(expected, std::abs(expected) * 4 * kEps, found[i]))
        << x[i];
    // A zero loses its sign: FinishScores() keeps small scores as they are.
    EXPECT_TRUE(x[i] == 0 || std::signbit(found[i]) == std::signbit(x[i]) ||
                std::isnan(x[i]))
        << x[i];
  }
}

// The polynomial, and as much again for the rounding of its argument, which is
// at most 1/2: in two products and, where there is no fused one, two sums.
TEST_P(ExpTanhTest, ExpTwiceIsAsAccurateAsFp32Allows) {
  const Floats x = Between(-40, 40);
  const Floats found = Apply(kernels_.exp_twice, x);
  for (size_t i = 0; i < x.size(); ++i) {
    const double expected = std::exp(2.0 * x[i]);
    ASSERT_TRUE(IsNear(expected, 2 * power_bound_ * expected, found[i]))
        << x[i];
  }
}

// A pair m, n that stands for m 2^n. The exponent is rounded once, which its
// power shows enlarged by ln 2 times it; that is why it is not used up to 40.
TEST_P(ExpTanhTest, WideExpTwiceHasNoLimits) {
  Floats x = Between(-300, 300);
  for (const float special : SpecialFloats()) x.push_back(special);
  Pad(x);
  Floats found(2 * x.size());
  kernels_.exp_twice_wide(x.data(), static_cast<int64_t>(x.size()),
                          found.data());
  for (size_t i = 0; i < x.size(); ++i) {
    const double exponent = 2.0 * x[i] / std::log(2.0);
    const float m = found[2 * i];
    const float n = found[2 * i + 1];
    if (std::isnan(x[i])) {
      ASSERT_TRUE(std::isnan(m) || std::isnan(n));
    } else if (std::abs(exponent) > kMaxFloat) {
      ASSERT_EQ(n, std::copysign(kInfinity, x[i]));
      ASSERT_EQ(m, 1.0F);
    } else {
      ASSERT_EQ(n, std::nearbyint(n));
      const double expected = std::exp2(exponent - n);
      ASSERT_TRUE(IsNear(
          expected, expected * (power_bound_ + kEps * std::abs(exponent)), m))
          << x[i];
      ASSERT_NEAR(exponent, n, 0.5 + kEps * std::abs(exponent));
    }
  }
}

TEST_P(ExpTanhTest, ScalingByPowersIsExactUpToSixty) {
  Floats m;
  Floats n;
  for (int exponent = -60; exponent <= 60; ++exponent) {
    for (const float mantissa : {0.5F, 0.70710678F, 1.0F, 1.4142135F, 1.99F}) {
      m.push_back(mantissa);
      n.push_back(static_cast<float>(exponent));
    }
  }
  Pad(m);
  Pad(n);
  Floats found(m.size());
  // 0.5 stands for all that Pad() added; as an exponent it is no whole number.
  for (float& x : n) x = std::floor(x);
  parts_.scale_by_power(m.data(), n.data(), static_cast<int64_t>(m.size()),
                        found.data());
  for (size_t i = 0; i < m.size(); ++i) {
    ASSERT_EQ(found[i], std::ldexp(m[i], static_cast<int>(n[i])));
  }
}

TEST_P(ExpTanhTest, ScalingByPowersBeyondSixtyKeepsToItsSide) {
  Floats n = {61, 100, 1e6F, 0x1p31F, 1e30F, kInfinity};
  const size_t large = n.size();
  for (size_t i = 0; i < large; ++i) n.push_back(-n[i]);
  Pad(n);
  const Floats m(n.size(), 0.75F);
  Floats found(n.size());
  parts_.scale_by_power(m.data(), n.data(), static_cast<int64_t>(n.size()),
                        found.data());
  for (size_t i = 0; i < large; ++i) {
    EXPECT_GE(found[i], 0x1.8p59F) << n[i];
    EXPECT_LE(found[large + i], 0x1.8p-61F) << n[large + i];
    EXPECT_GE(found[large + i], 0) << n[large + i];
  }
}

TEST_P(ExpTanhTest, ScalingByPowersKeepsNan) {
  for (const uint32_t bits : kNanBits) {
    const Floats nan(64, FloatFromBits(bits));
    const Floats number(64, 1.0F);
    Floats found(64);
    const auto scaled_is_nan = [&](const Floats& m, const Floats& n) {
      parts_.scale_by_power(m.data(), n.data(), 64, found.data());
      return std::isnan(found.front()) && std::isnan(found.back());
    };
    EXPECT_TRUE(scaled_is_nan(nan, number)) << std::hex << bits;
    EXPECT_TRUE(scaled_is_nan(number, nan)) << std::hex << bits;
    EXPECT_TRUE(scaled_is_nan(nan, nan)) << std::hex << bits;
  }
}

INSTANTIATE_FOR_KERNELS(ExpTanhTest);

}  // namespace
}  // namespace attention::cpu
