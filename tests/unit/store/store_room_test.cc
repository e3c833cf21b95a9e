#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/store/store.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/store/a_store.h"
#include "tests/unit/store/rows.h"

namespace attention::store {
namespace {

using std::chrono::seconds;
using test::IsOk;
using test::StatusIs;
using ::testing::AllOf;
using testing::AStore;
using ::testing::HasSubstr;
using testing::kExhausted;
using testing::kNotFound;
using ::testing::Not;
using testing::SmallPages;
using testing::Tags;
using testing::TagsOf;

// Bytes of an empty sequence with a name of one letter.
int64_t EmptyBytes() {
  AStore s;
  EXPECT_THAT(s.Create("", "x"), IsOk());
  return s.store.budget().held();
}

// A store with room for so many sequences of `pages` pages each.
StoreOptions RoomFor(int64_t sequences, int64_t pages, bool evict) {
  return {.memory_limit = sequences * (EmptyBytes() + SmallPages(pages)),
          .evict = evict};
}

TEST(StoreExpiryTest, WhatIsIdleForItsLimitExpires) {
  AStore s;
  ASSERT_THAT(s.Create("", "a", "", seconds(10)), IsOk());
  ASSERT_THAT(s.Create("", "b", "", seconds(20)), IsOk());
  ASSERT_THAT(s.Create("", "c"), IsOk());
  s.now += seconds(9);
  EXPECT_EQ(s.store.Expire(s.now).sequences, 0);
  s.now += seconds(1);
  EXPECT_EQ(s.store.Expire(s.now).sequences, 1);
  const auto gone = StatusIs(kNotFound, HasSubstr("sequence 'a' has expired"));
  EXPECT_THAT(s.store.Find("", "a", s.now), gone);
  EXPECT_THAT(s.store.Describe("", "a", s.now), gone);
  EXPECT_THAT(s.store.Find("", "b", s.now), IsOk());
  s.now += std::chrono::hours(1000);
  EXPECT_EQ(s.store.Expire(s.now).sequences, 1);
  EXPECT_THAT(s.store.Find("", "c", s.now), IsOk());
  EXPECT_EQ(s.Figures("").expirations, 2);
}

TEST(StoreExpiryTest, UseBeginsTheIdleTimeAnew) {
  AStore s;
  ASSERT_THAT(s.Create("", "a", "", seconds(10)), IsOk());
  for (int i = 0; i < 5; ++i) {
    s.now += seconds(9);
    EXPECT_EQ(s.store.Expire(s.now).sequences, 0);
    ASSERT_THAT(s.Append("", "a", 1, 1), IsOk());
  }
  // To look at it is no use.
  s.now += seconds(9);
  ASSERT_THAT(s.store.Describe("", "a", s.now), IsOk());
  ASSERT_THAT(s.store.List("", {}, s.now), IsOk());
  s.now += seconds(1);
  EXPECT_EQ(s.store.Expire(s.now).sequences, 1);
}

TEST(StoreExpiryTest, WhatIsInUseDoesNotExpire) {
  AStore s;
  ASSERT_THAT(s.Create("", "a", "", seconds(10)), IsOk());
  auto held = s.store.Find("", "a", s.now).value();
  s.now += seconds(15);
  EXPECT_EQ(s.store.Expire(s.now).sequences, 0);
  held.reset();
  // Its idle time begins when it was last seen in use.
  s.now += seconds(9);
  EXPECT_EQ(s.store.Expire(s.now).sequences, 0);
  s.now += seconds(1);
  EXPECT_EQ(s.store.Expire(s.now).sequences, 1);
}

TEST(StoreExpiryTest, ANameThatIsMadeAgainIsNoLongerGone) {
  AStore s;
  ASSERT_THAT(s.Create("", "a", "", seconds(1)), IsOk());
  s.now += seconds(1);
  ASSERT_EQ(s.store.Expire(s.now).sequences, 1);
  ASSERT_THAT(s.Create("", "a"), IsOk());
  ASSERT_THAT(s.store.Delete("", "a"), IsOk());
  EXPECT_THAT(s.store.Find("", "a", s.now),
              StatusIs(kNotFound, HasSubstr("no sequence 'a'")));
}

TEST(StoreExpiryTest, OfTooManyGoneNamesTheOldestAreForgotten) {
  AStore s({.gone_names = 2});
  for (const char* name : {"a", "b", "c"}) {
    ASSERT_THAT(s.Create("", name, "", seconds(1)), IsOk());
    s.now += seconds(1);
    ASSERT_EQ(s.store.Expire(s.now).sequences, 1);
  }
  EXPECT_THAT(s.store.Find("", "a", s.now),
              StatusIs(kNotFound, HasSubstr("no sequence 'a'")));
  EXPECT_THAT(s.store.Find("", "b", s.now),
              StatusIs(kNotFound, HasSubstr("'b' has expired")));
}

TEST(StoreLimitTest, WhereMemoryIsOutItIsSaidWhoHoldsIt) {
  AStore s(RoomFor(2, 2, /*evict=*/false));
  ASSERT_THAT(s.Create("alice", "a"), IsOk());
  ASSERT_THAT(s.Create("bob", "b"), IsOk());
  ASSERT_THAT(s.Append("bob", "b", 150, 1), IsOk());
  EXPECT_THAT(
      s.Append("alice", "a", 100, 1),
      StatusIs(kExhausted, AllOf(HasSubstr("no memory for 2 pages"),
                                 HasSubstr("bytes, most of them: 'bob' "),
                                 HasSubstr(", 'alice' "))));
  EXPECT_THAT(s.Append("alice", "a", 64, 1), IsOk());
  EXPECT_THAT(s.Create("alice", "c"), StatusIs(kExhausted, HasSubstr("'bob'")));
  // Nothing was lost for it.
  EXPECT_EQ(TagsOf(*s.store.Find("bob", "b", s.now).value()), Tags({{150, 1}}));
}

TEST(StoreLimitTest, WithoutOwnersNobodyIsNamed) {
  AStore s(RoomFor(1, 1, /*evict=*/false));
  ASSERT_THAT(s.Create("", "a"), IsOk());
  EXPECT_THAT(s.Append("", "a", 65, 1),
              StatusIs(kExhausted, AllOf(HasSubstr("sequences hold "),
                                         Not(HasSubstr("most of them")))));
}

TEST(StoreEvictionTest, TheLeastRecentlyUsedGoes) {
  AStore s(RoomFor(3, 1, /*evict=*/true));
  for (const char* name : {"a", "b", "c"}) {
    ASSERT_THAT(s.Create("", name), IsOk());
    ASSERT_THAT(s.Append("", name, 64, 1), IsOk());
  }
  const auto held = s.store.Find("", "a", s.now).value();
  ASSERT_THAT(s.Append("", "c", 1, 2), IsOk());
  const auto gone = StatusIs(kNotFound, HasSubstr("sequence 'b' was evicted"));
  EXPECT_THAT(s.store.Find("", "b", s.now), gone);
  EXPECT_EQ(TagsOf(*held), Tags({{64, 1}}));
  EXPECT_EQ(s.Figures("").evictions, 1);
  EXPECT_EQ(s.Figures("").pages, 3);
}

TEST(StoreEvictionTest, WhatIsInUseIsPassedOver) {
  AStore s(RoomFor(3, 1, /*evict=*/true));
  for (const char* name : {"a", "b"}) {
    ASSERT_THAT(s.Create("", name), IsOk());
    ASSERT_THAT(s.Append("", name, 64, 1), IsOk());
  }
  auto held = s.store.Find("", "a", s.now).value();
  ASSERT_THAT(s.store.Find("", "b", s.now), IsOk());
  ASSERT_THAT(s.Create("", "c"), IsOk());
  ASSERT_THAT(s.Append("", "c", 128, 2), IsOk());
  EXPECT_THAT(s.store.Describe("", "b", s.now),
              StatusIs(kNotFound, HasSubstr("'b' was evicted")));
  EXPECT_EQ(TagsOf(*held), Tags({{64, 1}}));
  // Nor is it any more once nobody uses it.
  held.reset();
  ASSERT_THAT(s.Append("", "c", 1, 2), IsOk());
  EXPECT_THAT(s.store.Describe("", "a", s.now),
              StatusIs(kNotFound, HasSubstr("'a' was evicted")));
}

// More than are passed over at once.
TEST(StoreEvictionTest, WhereAllAreInUseNobodyGoes) {
  constexpr int kMany = 200;
  AStore s(RoomFor(kMany + 1, 1, /*evict=*/true));
  std::vector<std::shared_ptr<Sequence>> held;
  for (int n = 0; n < kMany; ++n) {
    const std::string name = absl::StrCat(n);
    ASSERT_THAT(s.Create("", name), IsOk());
    ASSERT_THAT(s.Append("", name, 64, 1), IsOk());
    held.push_back(s.store.Find("", name, s.now).value());
  }
  ASSERT_THAT(s.Create("", "last"), IsOk());
  EXPECT_THAT(s.Append("", "last", 192, 2),
              StatusIs(kExhausted, HasSubstr("sequences hold ")));
  EXPECT_EQ(s.Figures("").evictions, 0);
  // One is found behind all the others.
  held[100].reset();
  EXPECT_THAT(s.Append("", "last", 128, 2), IsOk());
  EXPECT_THAT(s.store.Describe("", "100", s.now),
              StatusIs(kNotFound, HasSubstr("'100' was evicted")));
  EXPECT_EQ(s.Figures("").evictions, 1);
}

TEST(StoreEvictionTest, WhereTheLargestOwnersAreInUseWhoAsksGivesTheirOwn) {
  AStore s(RoomFor(6, 1, /*evict=*/true));
  ASSERT_THAT(s.Create("large", "l"), IsOk());
  ASSERT_THAT(s.Append("large", "l", 192, 1), IsOk());
  const auto held = s.store.Find("large", "l", s.now).value();
  for (const char* name : {"a", "b"}) {
    ASSERT_THAT(s.Create("small", name), IsOk());
    ASSERT_THAT(s.Append("small", name, 64, 1), IsOk());
  }
  ASSERT_THAT(s.Create("third", "t"), IsOk());
  EXPECT_THAT(s.Append("small", "b", 128, 2), IsOk());
  EXPECT_EQ(s.Figures("large").evictions, 0);
  EXPECT_EQ(s.Figures("third").evictions, 0);
  EXPECT_EQ(s.Figures("small").evictions, 1);
  EXPECT_THAT(s.store.Describe("small", "a", s.now),
              StatusIs(kNotFound, HasSubstr("'a' was evicted")));
}

TEST(StoreEvictionTest, WhatNeverFitsDrivesNobodyOut) {
  AStore s(RoomFor(3, 1, /*evict=*/true));
  ASSERT_THAT(s.Create("", "a"), IsOk());
  ASSERT_THAT(s.Create("", "b"), IsOk());
  EXPECT_THAT(s.Append("", "b", int64_t{64} * 100, 1),
              StatusIs(kExhausted, HasSubstr("100 pages")));
  const NewSequence large{testing::SmallForm(4096)};
  EXPECT_THAT(s.store.Create("", large, s.now),
              StatusIs(kExhausted, HasSubstr("no memory for a sequence")));
  EXPECT_THAT(s.store.Find("", "a", s.now), IsOk());
}

TEST(StoreEvictionTest, AForkBeyondTheLengthDrivesNobodyOut) {
  AStore s(RoomFor(2, 1, /*evict=*/true));
  for (const char* name : {"a", "b"}) {
    ASSERT_THAT(s.Create("", name), IsOk());
    ASSERT_THAT(s.Append("", name, 64, 1), IsOk());
  }
  EXPECT_THAT(s.store.Fork("", "b", {.length = 65}, s.now),
              StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("65")));
  EXPECT_THAT(s.store.Find("", "a", s.now), IsOk());
}

TEST(StoreEvictionTest, RowsThatAreThereNeedNoRoom) {
  AStore s(RoomFor(2, 6, /*evict=*/true));
  ASSERT_THAT(s.Create("", "a"), IsOk());
  ASSERT_THAT(s.Append("", "a", int64_t{64} * 8, 1), IsOk());
  ASSERT_THAT(s.Create("", "b"), IsOk());
  ASSERT_THAT(s.Append("", "b", int64_t{64} * 3, 1), IsOk());
  // All of a again, and a page more.
  const testing::Rows rows(testing::SmallForm(), 0, int64_t{64} * 9, 1);
  EXPECT_THAT(s.store.Append("", "a", 0, 0, rows.block(), s.now), IsOk());
  EXPECT_THAT(s.store.Find("", "b", s.now),
              StatusIs(kNotFound, HasSubstr("'b' was evicted")));
}

TEST(StoreEvictionTest, WhatASequenceTakesItselfNeedsRoom) {
  AStore s(RoomFor(1, 16, /*evict=*/true));
  ASSERT_THAT(s.Create("", "a"), IsOk());
  // Half of the room without a key, so that 10 pages fit, and 12 never.
  const int64_t layers = (s.store.budget().limit() - s.store.budget().held()) /
                         2 /
                         (Sequence::OwnBytes(testing::SmallForm(2)) -
                          Sequence::OwnBytes(testing::SmallForm(1)));
  const NewSequence wanted{testing::SmallForm(layers), "many", "", {}};
  ASSERT_THAT(s.store.Create("", wanted, s.now), IsOk());
  const testing::Rows rows(testing::SmallForm(), 0, int64_t{64} * 12, 1);
  EXPECT_THAT(s.store.Append("", "many", 0, {}, rows.block(), s.now),
              StatusIs(kExhausted, HasSubstr("12 pages")));
  EXPECT_THAT(s.store.Find("", "a", s.now), IsOk());
}

TEST(StoreEvictionTest, ASequenceAloneDoesNotDriveOutItself) {
  AStore s(RoomFor(1, 2, /*evict=*/true));
  ASSERT_THAT(s.Create("", "a"), IsOk());
  ASSERT_THAT(s.Append("", "a", 128, 1), IsOk());
  EXPECT_THAT(s.Append("", "a", 1, 1), StatusIs(kExhausted, HasSubstr("")));
  EXPECT_THAT(s.store.Fork("", "a", {}, s.now),
              StatusIs(kExhausted, HasSubstr("")));
  EXPECT_EQ(TagsOf(*s.store.Find("", "a", s.now).value()), Tags({{128, 1}}));
}

TEST(StoreEvictionTest, NobodyDrivesOutThoseWhoHoldLess) {
  AStore s(RoomFor(4, 1, /*evict=*/true));
  ASSERT_THAT(s.Create("small", "a"), IsOk());
  ASSERT_THAT(s.Append("small", "a", 64, 1), IsOk());
  for (int i = 0; i < 10; ++i) {
    const std::string name(1, static_cast<char>('a' + i));
    ASSERT_THAT(s.Create("greedy", name), IsOk());
    ASSERT_THAT(s.Append("greedy", name, 64, 1), IsOk());
  }
  EXPECT_THAT(s.store.Find("small", "a", s.now), IsOk());
  EXPECT_EQ(s.Figures("greedy").evictions, 7);
  EXPECT_EQ(s.Figures("small").evictions, 0);
  // Who holds less may take from who holds most.
  ASSERT_THAT(s.Append("small", "a", 1, 1), IsOk());
  EXPECT_EQ(s.Figures("greedy").evictions, 8);
}

}  // namespace
}  // namespace attention::store
