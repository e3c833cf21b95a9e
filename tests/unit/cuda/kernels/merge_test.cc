// The device's merge of splits beside the algebra of core/softmax_state.h: the
// same states, merged by both.

#include <cmath>
#include <cstdint>
#include <vector>

#include "core/cuda/emulation/emulated_kernels.h"
#include "core/softmax_state.h"
#include "gtest/gtest.h"
#include "tests/support/random.h"
#include "tests/support/special_numbers.h"

namespace attention::cuda {
namespace {

using attention::test::kFloatInfinity;
using attention::test::kFloatNan;
using attention::test::Random;
using attention::test::TestSeed;

constexpr int64_t kWidth = 3;

// What a split has found out, as partials have it.
struct Split {
  float max = -kFloatInfinity;
  float sum = 0;
  std::vector<float> weighted = std::vector<float>(kWidth);
};

struct Merged {
  double lse;
  std::vector<double> output = std::vector<double>(kWidth);
};

Merged OnTheDevice(const std::vector<Split>& splits) {
  AttentionArgs args;
  args.batch = args.query_heads = args.query_length = 1;
  args.key_length = static_cast<int64_t>(splits.size());
  args.splits = args.key_length;
  args.value.width = kWidth;
  std::vector<float> partials;
  for (const Split& split : splits) {
    partials.insert(partials.end(), {split.max, split.sum});
    partials.insert(partials.end(), split.weighted.begin(),
                    split.weighted.end());
  }
  EXPECT_EQ(PartialFloats(args), static_cast<int64_t>(partials.size()));
  std::vector<float> output(kWidth);
  float lse = 0;
  RowMark mark = RowMark::kNone;
  args.partials = partials.data();
  args.output = output.data();
  args.lse = &lse;
  args.marks = &mark;
  int32_t marked = 0;
  args.marked = &marked;
  EXPECT_EQ(EmulatedKernels().merge(args, MergeShape(args), nullptr), 0);
  return {lse, {output.begin(), output.end()}};
}

Merged ByTheAlgebra(const std::vector<Split>& splits) {
  SoftmaxState<double> all;
  Merged merged;
  for (const Split& split : splits) {
    const auto factors = all.Merge({split.max, split.sum});
    for (size_t n = 0; n < merged.output.size(); ++n) {
      // Not where it is 0: what it stands for has not been computed.
      merged.output[n] *= factors.mine;
      if (factors.other != 0) {
        merged.output[n] += factors.other * split.weighted[n];
      }
    }
  }
  for (double& value : merged.output) value *= all.Normalizer();
  merged.lse = all.LogSumExp();
  return merged;
}

void ExpectSame(const std::vector<Split>& splits) {
  const Merged device = OnTheDevice(splits);
  const Merged algebra = ByTheAlgebra(splits);
  const auto expect_near = [](double actual, double expected, double size) {
    if (!std::isfinite(expected)) {
      EXPECT_TRUE(actual == expected ||
                  (std::isnan(actual) && std::isnan(expected)))
          << actual << ", expected " << expected;
      return;
    }
    EXPECT_NEAR(actual, expected, 0x1p-20 * (1 + size));
  };
  expect_near(device.lse, algebra.lse, std::abs(algebra.lse));
  for (size_t n = 0; n < kWidth; ++n) {
    expect_near(device.output[n], algebra.output[n], 1);
  }
}

// Weighted values of weights that add up to the sum.
Split SplitOf(float max, Random& random) {
  Split split;
  split.max = max;
  split.sum = 1 + static_cast<float>(random.Between(0, 100)) / 10;
  for (float& value : split.weighted) {
    value = split.sum * static_cast<float>(std::tanh(random.Normal()));
  }
  return split;
}

TEST(MergeTest, IsTheAlgebraOfSoftmaxStates) {
  Random random(TestSeed());
  for (const double spread : {0.1, 3.0, 50.0, 1000.0}) {
    for (int count = 2; count < 20; ++count) {
      std::vector<Split> splits;
      splits.reserve(static_cast<size_t>(count));
      for (int n = 0; n < count; ++n) {
        splits.push_back(
            SplitOf(static_cast<float>(spread * random.Normal()), random));
      }
      SCOPED_TRACE(spread);
      ExpectSame(splits);
    }
  }
}

TEST(MergeTest, EmptyStatesChangeNothing) {
  Random random(TestSeed());
  const Split empty;
  ExpectSame({empty, empty});
  ExpectSame({empty, SplitOf(3, random), empty, SplitOf(-2, random)});
}

TEST(MergeTest, WhatAnEmptyStateHasGatheredIsNotLookedAt) {
  Random random(TestSeed());
  Split empty;
  empty.weighted.assign(kWidth, kFloatNan);  // a value's, times 0
  const Split some = SplitOf(3, random);
  ExpectSame({empty, some});
  ExpectSame({some, empty});
}

TEST(MergeTest, NanStays) {
  Random random(TestSeed());
  Split nan = SplitOf(1, random);
  nan.sum = kFloatNan;
  ExpectSame({SplitOf(3, random), nan, SplitOf(5, random)});
  // All scores of a split may be NaN: then no maximum is known of it.
  nan.max = -kFloatInfinity;
  ExpectSame({SplitOf(3, random), nan});
}

}  // namespace
}  // namespace attention::cuda
