// The layer under kernels, as the host emulates it.

#include "core/cuda/portable/portable.h"

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "absl/types/span.h"
#include "core/cuda/kernels/philox-inl.h"
#include "core/element.h"
#include "core/philox.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/random.h"
#include "tests/support/special_numbers.h"

namespace attention::cuda {
namespace {

using attention::test::kFloatInfinity;
using attention::test::Random;
using attention::test::TestSeed;
using emulation::Order;

constexpr int kThreads = 64;

// One block of 64 threads, in each order.
template <typename Kernel>
void RunBothOrders(int64_t shared_bytes, const Kernel& kernel) {
  for (const Order order : {Order::kDescending, Order::kAscending}) {
    emulation::SetOrder(order);
    emulation::RunGrid(1, kThreads, shared_bytes, kernel);
  }
}

TEST(EmulationTest, EveryThreadOfEveryBlockRunsOnce) {
  std::vector<int> runs(size_t{3} * kThreads, 0);
  emulation::RunGrid(3, kThreads, 0, [&runs] {
    ++runs[static_cast<size_t>(BlockIndex() * kThreads + ThreadIndex())];
  });
  EXPECT_THAT(runs, ::testing::Each(1));
}

TEST(EmulationTest, SyncBlockShowsWhatOthersWrote) {
  std::vector<int> seen(kThreads, -1);
  RunBothOrders(kThreads * sizeof(int), [&seen] {
    auto* const shared = reinterpret_cast<int*>(SharedMemory());
    for (int round = 0; round < 3; ++round) {
      shared[ThreadIndex()] = 100 * round + ThreadIndex();
      SyncBlock();
      seen[static_cast<size_t>(ThreadIndex())] =
          shared[(ThreadIndex() + 33) % kThreads];
      SyncBlock();
    }
  });
  for (int t = 0; t < kThreads; ++t) {
    EXPECT_EQ(seen[static_cast<size_t>(t)], 200 + (t + 33) % kThreads);
  }
}

TEST(EmulationTest, SharedMemoryIsNotZeroAtFirst) {
  float first = 0;
  emulation::RunGrid(1, kThreads, sizeof(float), [&first] {
    if (ThreadIndex() == 0) {
      std::memcpy(&first, SharedMemory(), sizeof(first));
    }
  });
  EXPECT_TRUE(std::isnan(first));
}

TEST(EmulationTest, ThreadsThatHaveEndedAreNotWaitedFor) {
  int reached = 0;
  RunBothOrders(0, [&reached] {
    if (ThreadIndex() % 2 == 0) return;
    SyncBlock();
    ++reached;
  });
  EXPECT_EQ(reached, kThreads);
}

TEST(EmulationTest, SyncBlockOrHearsEveryThread) {
  std::vector<int> heard(kThreads, 0);
  RunBothOrders(0, [&heard] {
    int all = 0;
    for (int round = 0; round < 5; ++round) {
      // In round 1 and 4, one thread says so.
      const bool says = round % 3 == 1 && ThreadIndex() == 17 * (round - 1);
      if (SyncBlockOr(says)) all |= 1 << round;
      if (round == 2) SyncBlock();
    }
    heard[static_cast<size_t>(ThreadIndex())] = all;
  });
  EXPECT_THAT(heard, ::testing::Each(0b10010));
}

using EmulationDeathTest = ::testing::Test;

TEST(EmulationDeathTest, ThreadsThatWaitAtDifferentPointsEndTheProcess) {
  EXPECT_DEATH(emulation::RunGrid(1, kThreads, 0,
                                  [] {
                                    if (ThreadIndex() == 3) {
                                      emulation::SyncWarp();
                                    } else {
                                      SyncBlock();
                                    }
                                  }),
               "never comes");
}

TEST(PortableTest, ShuffleXorGivesTheOtherLanesValue) {
  std::vector<double> got(kThreads, 0);
  RunBothOrders(0, [&got] {
    double value = ThreadIndex();
    for (int mask = 16; mask > 0; mask /= 2) value = ShuffleXor(value, mask);
    got[static_cast<size_t>(ThreadIndex())] = value;
  });
  for (int t = 0; t < kThreads; ++t) {
    EXPECT_EQ(got[static_cast<size_t>(t)], t ^ 31);
  }
}

TEST(PortableTest, Exp2IsGoodToAUnit) {
  Random random(TestSeed());
  for (int n = 0; n < 20000; ++n) {
    const auto x = static_cast<float>(-126 + 130 * random.Uniform());
    const double exact = std::exp2(static_cast<double>(x));
    EXPECT_NEAR(Exp2(x) / exact, 1, 1.2 * 0x1p-24) << x;
  }
}

TEST(PortableTest, Exp2OfWhatIsNotFinite) {
  EXPECT_EQ(Exp2(-kFloatInfinity), 0);
  EXPECT_EQ(Exp2(0), 1);
  EXPECT_TRUE(std::isnan(Exp2(std::numeric_limits<float>::quiet_NaN())));
}

// Half and Brain, beside the conversions of core/element.h.
template <typename T>
DataType TypeOf() {
  return std::is_same_v<T, Half> ? DataType::kFloat16 : DataType::kBFloat16;
}

template <typename T>
class SixteenBitsTest : public ::testing::Test {};
using SixteenBits = ::testing::Types<Half, Brain>;
TYPED_TEST_SUITE(SixteenBitsTest, SixteenBits);

TYPED_TEST(SixteenBitsTest, EveryNumberIsWidenedExactly) {
  for (uint32_t bits = 0; bits < 0x10000U; ++bits) {
    const TypeParam number{static_cast<uint16_t>(bits)};
    const double expected = LoadElement(
        TypeOf<TypeParam>(), reinterpret_cast<const std::byte*>(&number));
    const double got = Widen(number);
    EXPECT_TRUE(got == expected || (std::isnan(got) && std::isnan(expected)))
        << bits;
  }
}

TYPED_TEST(SixteenBitsTest, NumbersAreRoundedToTheNearest) {
  Random random(TestSeed());
  for (int n = 0; n < 200000; ++n) {
    const auto bits = static_cast<uint32_t>(random.Below(int64_t{1} << 32));
    const float value = BitsToFloat(bits);
    if (std::isnan(value)) continue;
    TypeParam expected;
    StoreElement(TypeOf<TypeParam>(), value,
                 reinterpret_cast<std::byte*>(&expected));
    EXPECT_EQ(Round<TypeParam>(value).bits, expected.bits) << value;
  }
}

TYPED_TEST(SixteenBitsTest, TiesGoToEven) {
  for (uint32_t bits = 0; bits < 0x7C00U; ++bits) {
    const TypeParam low{static_cast<uint16_t>(bits)};
    const TypeParam high{static_cast<uint16_t>(bits + 1)};
    const float middle = Widen(low) / 2 + Widen(high) / 2;
    if (!std::isfinite(middle) || middle == Widen(low)) continue;
    TypeParam expected;
    StoreElement(TypeOf<TypeParam>(), middle,
                 reinterpret_cast<std::byte*>(&expected));
    EXPECT_EQ(Round<TypeParam>(middle).bits, expected.bits) << bits;
  }
}

// A (16, 16), B (16, 8), both from shared memory through ldmatrix, C (16, 8).
template <typename T>
void MultiplyByTensorCore(const T* a, const T* b, float* c) {
  emulation::RunGrid(1, kWarp, (256 + 128) * 2, [=] {
    auto* const shared = reinterpret_cast<T*>(SharedMemory());
    const int lane = ThreadIndex();
    for (int i = lane; i < 256; i += kWarp) shared[i] = a[i];
    for (int i = lane; i < 128; i += kWarp) shared[256 + i] = b[i];
    SyncBlock();
    uint32_t a_part[4];
    uint32_t b_part[4];
    LoadMatrices(a_part, PlaceOf(shared + lane % 16 * 16 + lane / 16 * 8));
    LoadMatricesTransposed(b_part, PlaceOf(shared + 256 + lane % 16 * 8));
    float sums[4] = {1, 2, 3, 4};
    MultiplyAdd<T>(sums, a_part, b_part[0], b_part[1]);
    for (int n = 0; n < 4; ++n) {
      c[(lane / 4 + n / 2 * 8) * 8 + lane % 4 * 2 + n % 2] =
          sums[n] - static_cast<float>(n + 1);
    }
  });
}

TYPED_TEST(SixteenBitsTest, TensorCoreMultipliesMatrices) {
  Random random(TestSeed());
  const auto whole = [&random] {
    return Round<TypeParam>(static_cast<float>(random.Between(-9, 9)));
  };
  std::array<TypeParam, 256> a;
  std::array<TypeParam, 128> b;
  for (TypeParam& number : a) number = whole();
  for (TypeParam& number : b) number = whole();
  std::array<float, 128> c = {};
  MultiplyByTensorCore(a.data(), b.data(), c.data());
  for (size_t row = 0; row < 16; ++row) {
    for (size_t column = 0; column < 8; ++column) {
      float expected = 0;
      for (size_t k = 0; k < 16; ++k) {
        expected += Widen(a[row * 16 + k]) * Widen(b[k * 8 + column]);
      }
      EXPECT_EQ(c[row * 8 + column], expected) << row << ", " << column;
    }
  }
}

TEST(PortableTest, LoadMatricesGivesRowsToLanes) {
  std::vector<uint32_t> got(kWarp);
  emulation::RunGrid(1, kWarp, int64_t{kWarp} * 16, [&got] {
    auto* const shared = reinterpret_cast<uint16_t*>(SharedMemory());
    const int first = ThreadIndex() * 8;
    for (int i = first; i < first + 8; ++i) {
      shared[i] = static_cast<uint16_t>(i);
    }
    SyncBlock();
    uint32_t parts[4];
    LoadMatrices(parts, PlaceOf(shared + first));
    got[static_cast<size_t>(ThreadIndex())] = parts[2];
  });
  for (uint32_t lane = 0; lane < kWarp; ++lane) {
    // The third matrix has rows 16 ... 23 of 8 numbers.
    const uint32_t first = (16 + lane / 4) * 8 + lane % 4 * 2;
    EXPECT_EQ(got[lane], first | (first + 1) << 16);
  }
}

// What lies in `bytes` of shared memory once the copies are done that a thread
// starts: start(to, 16 aligned bytes).
template <typename Start>
std::vector<uint8_t> AfterCopies(int bytes, const Start& start) {
  std::vector<uint8_t> got(static_cast<size_t>(bytes), 1);
  emulation::RunGrid(1, kWarp, bytes, [&got, &start] {
    alignas(16) const uint8_t from[16] = {1, 2, 3, 4, 5, 6, 7, 8,
                                          9, 8, 7, 6, 5, 4, 3, 2};
    if (ThreadIndex() == 0) start(SharedMemory(), from);
    CommitCopies();
    WaitForCopies<0>();
    SyncBlock();
    if (ThreadIndex() == 0) {
      std::memcpy(got.data(), SharedMemory(), got.size());
    }
  });
  return got;
}

TEST(PortableTest, CopiesThatAreNotValidGiveZeros) {
  const std::vector<uint8_t> got =
      AfterCopies(32, [](std::byte* to, const uint8_t* from) {
        CopyAsync<16>(to, from, true);
        CopyAsync<16>(to + 16, from, false);
      });
  EXPECT_EQ(got[8], 9);
  EXPECT_EQ(got[24], 0);
}

TEST(PortableTest, CopiesMayBeShort) {
  const std::vector<uint8_t> got =
      AfterCopies(16, [](std::byte* to, const uint8_t* from) {
        CopyAsync<8>(to, from + 8, true);
        CopyAsync<4>(to + 8, from + 4, true);
        CopyAsync<4>(to + 12, from, false);
      });
  EXPECT_THAT(got, ::testing::ElementsAre(9, 8, 7, 6, 5, 4, 3, 2, 5, 6, 7, 8, 0,
                                          0, 0, 0));
}

TEST(PhiloxTest, KernelsDropWhatTheCoreDrops) {
  const DropoutPattern pattern(0.4, 0x0123456789ABCDEF);
  const DropoutArgs args = {
      .active = 1,
      .threshold = static_cast<uint32_t>(std::floor(std::ldexp(0.4, 32))),
      .seed = 0x0123456789ABCDEF,
      .kept = 1 / 0.6};
  for (int64_t key = 0; key < 1000; key += 4) {
    const PhiloxWords words = DropoutWords(args, 3, 2, 77, key);
    double factors[4];
    pattern.FillFactors(3, 2, 77, key, absl::MakeSpan(factors));
    for (int n = 0; n < 4; ++n) {
      EXPECT_EQ(words.word[n] < args.threshold, factors[n] == 0);
    }
  }
}

}  // namespace
}  // namespace attention::cuda
