// Which tiles of keys a block of attend_wgmma reads: for every pair of spans
// whose ends lie near those of tiles.

#include <cstdint>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/cuda/kernels/wgmma_keys-inl.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace attention::cuda {
namespace {

constexpr int64_t kKeyLength = 5 * kWgmmaKeys - 3;
constexpr int64_t kMost = CeilDivide(kKeyLength, kWgmmaKeys);

struct Spans {
  KeySpan any;
  KeySpan every;
};

// What rows with a common span, and more keys each for themselves, read.
std::vector<Spans> AllSpans() {
  std::vector<int64_t> ends;
  for (int64_t tile = 0; tile <= kMost; ++tile) {
    for (const int64_t more : {-1, 0, 1}) {
      const int64_t end = tile * kWgmmaKeys + more;
      if (end >= 0 && end <= kKeyLength) ends.push_back(end);
    }
  }
  ends.push_back(kKeyLength);
  std::vector<Spans> all;
  for (const int64_t any_begin : ends) {
    for (const int64_t any_end : ends) {
      for (const int64_t begin : ends) {
        for (const int64_t end : ends) {
          if (any_begin > any_end) continue;
          if (begin < end && (begin < any_begin || end > any_end)) continue;
          all.push_back({{any_begin, any_end}, {begin, end}});
        }
      }
    }
  }
  return all;
}

std::string Text(const Spans& spans) {
  return absl::StrCat("any ", spans.any.begin, " to ", spans.any.end,
                      ", every ", spans.every.begin, " to ", spans.every.end);
}

WgmmaTiles TilesOf(const Spans& spans) {
  return TilesOfSpans(spans.any, spans.every, kMost);
}

TEST(WgmmaTilesTest, EveryTileThatARowReadsIsReadOnce) {
  for (const Spans& spans : AllSpans()) {
    SCOPED_TRACE(Text(spans));
    const WgmmaTiles tiles = TilesOf(spans);
    std::set<int> read;
    for (int at = 0; at < tiles.count; ++at) read.insert(TileAt(tiles, at));
    ASSERT_EQ(static_cast<int>(read.size()), tiles.count);
    for (int64_t key = spans.any.begin; key < spans.any.end; ++key) {
      ASSERT_TRUE(read.contains(static_cast<int>(key / kWgmmaKeys))) << key;
    }
  }
}

TEST(WgmmaTilesTest, OnlyTilesOfKeysAreRead) {
  for (const Spans& spans : AllSpans()) {
    SCOPED_TRACE(Text(spans));
    const WgmmaTiles tiles = TilesOf(spans);
    ASSERT_GE(tiles.count, 1);
    for (int at = 0; at < tiles.count; ++at) {
      ASSERT_GE(TileAt(tiles, at), 0);
      ASSERT_LT(TileAt(tiles, at), kMost);
    }
  }
}

TEST(WgmmaTilesTest, EveryRowReadsAllKeysOfTilesInside) {
  for (const Spans& spans : AllSpans()) {
    SCOPED_TRACE(Text(spans));
    const WgmmaTiles tiles = TilesOf(spans);
    ASSERT_GE(tiles.inside, 0);
    ASSERT_LT(tiles.inside, tiles.count);
    for (int at = 1; at <= tiles.inside; ++at) {
      const int64_t first = TileAt(tiles, at) * kWgmmaKeys;
      ASSERT_GE(first, spans.every.begin);
      ASSERT_LE(first + kWgmmaKeys, spans.every.end);
    }
  }
}

TEST(WgmmaTilesTest, OnlyTilesAtTheEndsCountAsOnesWhereKeysAreLeftOut) {
  for (const Spans& spans : AllSpans()) {
    SCOPED_TRACE(Text(spans));
    const int64_t whole = spans.every.end / kWgmmaKeys -
                          CeilDivide(spans.every.begin, kWgmmaKeys);
    ASSERT_GE(TilesOf(spans).inside + 1, whole);
  }
}

TEST(WgmmaTilesTest, WithoutRangesOnlyTheFirstAndAPartialLastTileAreMasked) {
  const KeySpan all = {0, kKeyLength};
  const WgmmaTiles tiles = TilesOfSpans(all, all, kMost);
  EXPECT_EQ(tiles.first, 0);
  EXPECT_EQ(tiles.count, kMost);
  EXPECT_EQ(tiles.shift, 0);
  EXPECT_EQ(tiles.inside, kMost - 2);
}

}  // namespace
}  // namespace attention::cuda
