// The largest weights of a row, against sorting all of them.

#include "core/top_k.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace attention {
namespace {

using Entry = std::pair<float, int64_t>;  // weight, key

// At odd addresses.
std::vector<Entry> LargestOf(const std::vector<float>& weights, size_t k) {
  std::vector<std::byte> keys(8 * k + 1);
  std::vector<std::byte> kept(4 * k + 1);
  TopK top_k(static_cast<int64_t>(k), keys.data() + 1, kept.data() + 1);
  for (size_t n = 0; n < weights.size(); ++n) {
    top_k.Offer(weights[n], static_cast<int64_t>(n));
  }
  top_k.Finish();
  std::vector<Entry> entries(k);
  for (size_t n = 0; n < k; ++n) {
    std::memcpy(&entries[n].first, kept.data() + 1 + 4 * n, 4);
    std::memcpy(&entries[n].second, keys.data() + 1 + 8 * n, 8);
  }
  return entries;
}

std::vector<Entry> Sorted(const std::vector<float>& weights, size_t k) {
  std::vector<Entry> entries;
  entries.reserve(weights.size());
  for (size_t n = 0; n < weights.size(); ++n) {
    entries.emplace_back(weights[n], static_cast<int64_t>(n));
  }
  std::stable_sort(
      entries.begin(), entries.end(),
      [](const Entry& a, const Entry& b) { return a.first > b.first; });
  entries.resize(k, {0.0F, -1});
  return entries;
}

TEST(TopK, AreThoseThatSortingPutsFirst) {
  std::mt19937 random(5);
  for (const size_t count : {0U, 1U, 7U, 100U, 500U}) {
    for (const int distinct : {1, 3, 1000}) {
      std::vector<float> weights(count);
      for (float& weight : weights) {
        weight = static_cast<float>(random() % static_cast<uint32_t>(distinct));
      }
      for (const size_t k : {1U, 2U, 5U, 64U, 600U}) {
        EXPECT_EQ(LargestOf(weights, k), Sorted(weights, k)) << count;
      }
    }
  }
}

TEST(TopK, RiseAndFall) {
  std::vector<float> weights(50);
  for (size_t n = 0; n < 50; ++n) weights[n] = static_cast<float>(n);
  EXPECT_EQ(LargestOf(weights, 7), Sorted(weights, 7));
  std::reverse(weights.begin(), weights.end());
  EXPECT_EQ(LargestOf(weights, 7), Sorted(weights, 7));
}

TEST(TopK, OfNanAreTheFirst) {
  const std::vector<float> weights(9, std::numeric_limits<float>::quiet_NaN());
  const std::vector<Entry> entries = LargestOf(weights, 3);
  for (int64_t n = 0; n < 3; ++n) {
    EXPECT_TRUE(std::isnan(entries[static_cast<size_t>(n)].first));
    EXPECT_EQ(entries[static_cast<size_t>(n)].second, n);
  }
}

TEST(TopK, HasABoundWhenItIsFull) {
  std::vector<std::byte> keys(16);
  std::vector<std::byte> kept(8);
  TopK top_k(2, keys.data(), kept.data());
  EXPECT_LT(top_k.bound(), 0);
  top_k.Offer(0.5F, 0);
  EXPECT_LT(top_k.bound(), 0);
  top_k.Offer(0.25F, 1);
  EXPECT_EQ(top_k.bound(), 0.25F);
  top_k.Offer(0.75F, 2);
  EXPECT_EQ(top_k.bound(), 0.5F);
}

}  // namespace
}  // namespace attention
