#include "core/philox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "absl/types/span.h"

namespace attention {
namespace {

using ::testing::ElementsAre;

bool Drops(const DropoutPattern& pattern, int64_t batch, int64_t head,
           int64_t row, int64_t key) {
  double factor = -1;
  pattern.FillFactors(batch, head, row, key, absl::MakeSpan(&factor, 1));
  return factor == 0;
}

// Known answers of the Random123 distribution (kat_vectors, philox4x32 10).
TEST(Philox4x32, AnswersAsRandom123DoesForZeros) {
  EXPECT_THAT(Philox4x32({0, 0, 0, 0}, {0, 0}),
              ElementsAre(0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8));
}

TEST(Philox4x32, AnswersAsRandom123DoesForOnes) {
  constexpr uint32_t kOnes = 0xffffffff;
  EXPECT_THAT(Philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
              ElementsAre(0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd));
}

TEST(Philox4x32, AnswersAsRandom123DoesForPi) {
  EXPECT_THAT(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                         {0xa4093822, 0x299f31d0}),
              ElementsAre(0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1));
}

TEST(DropoutPattern, DropsNothingAtZero) {
  const DropoutPattern pattern(0, 42);
  EXPECT_FALSE(pattern.active());
  for (int64_t key = 0; key < 100; ++key) {
    EXPECT_FALSE(Drops(pattern, 0, 0, 0, key));
  }
}

TEST(DropoutPattern, DropsAboutItsShare) {
  const DropoutPattern pattern(0.25, 42);
  int dropped = 0;
  for (int64_t row = 0; row < 100; ++row) {
    for (int64_t key = 0; key < 100; ++key) {
      dropped += Drops(pattern, 1, 2, row, key) ? 1 : 0;
    }
  }
  // 10,000 draws: 2,500 expected, 43 is one standard deviation.
  EXPECT_GT(dropped, 2500 - 5 * 43);
  EXPECT_LT(dropped, 2500 + 5 * 43);
}

TEST(DropoutPattern, UsesTheDocumentedWordAndCounter) {
  const DropoutPattern pattern(0.5, 0x123456789abcdef0);
  const auto words = Philox4x32({7 / 4, 11, 3, 2}, {0x9abcdef0, 0x12345678});
  for (int64_t key = 4; key < 8; ++key) {
    EXPECT_EQ(Drops(pattern, 2, 3, 11, key), words[key % 4] < 0x80000000);
  }
}

TEST(DropoutPattern, DependsOnEveryIndexAndTheWholeSeed) {
  const DropoutPattern pattern(0.5, 1);
  const DropoutPattern other_seed(0.5, (uint64_t{1} << 32) | 1);
  int batch = 0;
  int head = 0;
  int row = 0;
  int seed = 0;
  for (int64_t key = 0; key < 64; ++key) {
    const bool drops = Drops(pattern, 0, 0, 0, key);
    batch += drops != Drops(pattern, 1, 0, 0, key) ? 1 : 0;
    head += drops != Drops(pattern, 0, 1, 0, key) ? 1 : 0;
    row += drops != Drops(pattern, 0, 0, 1, key) ? 1 : 0;
    seed += drops != Drops(other_seed, 0, 0, 0, key) ? 1 : 0;
  }
  EXPECT_GT(batch, 0);
  EXPECT_GT(head, 0);
  EXPECT_GT(row, 0);
  EXPECT_GT(seed, 0);
}

// A run of keys may begin and end within the four that share a counter.
TEST(DropoutPattern, FillsFactorsAsForEachKeyByItself) {
  const DropoutPattern pattern(0.4, 0x123456789abcdef0);
  constexpr int64_t kBeyondLowBits = (int64_t{1} << 34) - 2;
  for (const int64_t first_key : {int64_t{0}, int64_t{1}, int64_t{2},
                                  int64_t{3}, int64_t{510}, kBeyondLowBits}) {
    for (const size_t count : {1, 3, 4, 5, 17}) {
      std::vector<float> factors(count, -1.0F);
      std::vector<double> wide(count, -1.0);
      pattern.FillFactors(2, 3, 11, first_key, absl::MakeSpan(factors));
      pattern.FillFactors(2, 3, 11, first_key, absl::MakeSpan(wide));
      for (size_t n = 0; n < count; ++n) {
        SCOPED_TRACE(::testing::Message() << n << " from " << first_key);
        const int64_t key = first_key + static_cast<int64_t>(n);
        const double factor =
            Drops(pattern, 2, 3, 11, key) ? 0 : pattern.scale();
        EXPECT_EQ(wide[n], factor);
        EXPECT_EQ(factors[n], static_cast<float>(factor));
      }
    }
  }
}

TEST(DropoutPattern, WritesNothingBeyondItsRun) {
  const DropoutPattern pattern(0.5, 1);
  for (const size_t count : {0, 1, 3}) {
    std::vector<float> factors(8, -1.0F);
    pattern.FillFactors(0, 0, 0, 2, absl::MakeSpan(factors).first(count));
    for (size_t n = count; n < factors.size(); ++n) {
      EXPECT_EQ(factors[n], -1.0F) << n << " after a run of " << count;
    }
  }
}

}  // namespace
}  // namespace attention
