// Who goes where memory is out, and who does not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

using test::IsOk;
using test::StatusIs;
using testing::AStore;
using testing::EmptyBytes;
using ::testing::HasSubstr;
using testing::kExhausted;
using testing::kNotFound;
using testing::RoomFor;
using testing::SmallForm;
using testing::SmallPages;
using testing::Tags;
using testing::TagsOf;

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

// A store with a sequence of each owner and number of pages, whose names are a,
// b, ..., and room for one more, x of the last owner, with `free` pages.
struct Holding {
  std::string owner;
  int64_t pages;
};
std::unique_ptr<AStore> Holds(const std::vector<Holding>& all, int64_t free) {
  int64_t bytes = EmptyBytes() + SmallPages(free);
  for (const Holding& one : all) bytes += EmptyBytes() + SmallPages(one.pages);
  auto s = std::make_unique<AStore>(
      StoreOptions{.memory_limit = bytes, .evict = true});
  char name = 'a';
  for (const Holding& one : all) {
    const std::string own(1, name++);
    EXPECT_THAT(s->Create(one.owner, own), IsOk());
    EXPECT_THAT(s->Append(one.owner, own, one.pages * 64, 1), IsOk());
  }
  EXPECT_THAT(s->Create(all.back().owner, "x"), IsOk());
  return s;
}

TEST(StoreEvictionTest, WhereAllThatMayGoDoNotSufficeNobodyGoes) {
  const auto s = Holds({{"alice", 2}, {"alice", 5}, {"bob", 1}}, 3);
  const auto held = s->store.Find("alice", "b", s->now).value();
  // There are 3, and with the two of a and the one of c 6.
  EXPECT_THAT(s->Append("bob", "x", int64_t{64} * 8, 1),
              StatusIs(kExhausted, HasSubstr("8 pages")));
  EXPECT_EQ(s->Figures("alice").evictions, 0);
  EXPECT_EQ(s->Figures("bob").evictions, 0);
  EXPECT_THAT(s->store.Describe("alice", "a", s->now), IsOk());
  // Those of who holds most do.
  EXPECT_THAT(s->Append("bob", "x", int64_t{64} * 5, 1), IsOk());
  EXPECT_THAT(s->store.Describe("alice", "a", s->now),
              StatusIs(kNotFound, HasSubstr("'a' was evicted")));
  EXPECT_EQ(s->Figures("bob").evictions, 0);
}

TEST(StoreEvictionTest, OfSeveralEachIsOfWhoThenHoldsMost) {
  const auto s = Holds(
      {{"large", 3}, {"large", 3}, {"middle", 2}, {"middle", 2}, {"small", 1}},
      0);
  // large has 6, then 3; middle 4, then 2.
  ASSERT_THAT(s->Append("small", "x", int64_t{64} * 7, 1), IsOk());
  EXPECT_EQ(s->Figures("large").evictions, 2);
  EXPECT_THAT(s->store.Describe("middle", "c", s->now),
              StatusIs(kNotFound, HasSubstr("'c' was evicted")));
  EXPECT_EQ(s->Figures("middle").evictions, 1);
  EXPECT_EQ(s->Figures("small").evictions, 0);
}

TEST(StoreEvictionTest, APageGoesWithTheLastForkThatHasIt) {
  const auto s = Holds({{"", 4}, {"", 1}}, 4);
  ASSERT_THAT(s->store.Fork("", "a", {.name = "f"}, s->now), IsOk());
  auto held = s->store.Find("", "f", s->now).value();
  ASSERT_THAT(s->store.Find("", "a", s->now), IsOk());
  // There are 3 beside the fork; b has one, and a none of its own.
  EXPECT_THAT(s->Append("", "x", int64_t{64} * 6, 1),
              StatusIs(kExhausted, HasSubstr("6 pages")));
  EXPECT_EQ(s->Figures("").evictions, 0);
  held.reset();
  EXPECT_THAT(s->Append("", "x", int64_t{64} * 8, 1), IsOk());
  EXPECT_EQ(s->Figures("").evictions, 3);
}

// A page that is copied because a fork has written there needs no copy without
// the fork.
TEST(StoreEvictionTest, AForkThatGoesLeavesThePageToTheOther) {
  const auto fill = [](AStore& s) {
    ASSERT_THAT(s.Create("", "a"), IsOk());
    ASSERT_THAT(s.Append("", "a", 100, 1), IsOk());
    ASSERT_THAT(s.store.Fork("", "a", {.name = "f"}, s.now), IsOk());
    ASSERT_THAT(s.Append("", "f", 1, 2), IsOk());
  };
  AStore measured;
  fill(measured);
  AStore s({.memory_limit = measured.store.budget().held(), .evict = true});
  fill(s);
  EXPECT_THAT(s.Append("", "a", 1, 3), IsOk());
  EXPECT_EQ(TagsOf(*s.store.Find("", "a", s.now).value()),
            Tags({{100, 1}, {1, 3}}));
  EXPECT_EQ(s.Figures("").evictions, 1);
}

// Each of the others has as much as the append takes without a copy.
TEST(StoreEvictionTest, ASharedPageThatNobodyGoesOnInIsNotCopied) {
  const auto fill = [](AStore& s) {
    ASSERT_THAT(s.Create("", "a"), IsOk());
    ASSERT_THAT(s.Append("", "a", 100, 1), IsOk());
    ASSERT_THAT(s.store.Fork("", "a", {.name = "f"}, s.now), IsOk());
    for (const char* name : {"b", "c"}) {
      ASSERT_THAT(s.Create("", name), IsOk());
      ASSERT_THAT(s.Append("", name, 64, 1), IsOk());
    }
  };
  AStore measured;
  fill(measured);
  AStore s({.memory_limit = measured.store.budget().held(), .evict = true});
  fill(s);
  const auto fork = s.store.Find("", "f", s.now).value();
  EXPECT_THAT(s.Append("", "a", 64, 2), IsOk());
  EXPECT_EQ(s.Figures("").evictions, 1);
  EXPECT_EQ(TagsOf(*s.store.Find("", "a", s.now).value()),
            Tags({{100, 1}, {64, 2}}));
  EXPECT_EQ(TagsOf(*fork), Tags({{100, 1}}));
}

TEST(StoreEvictionTest, OfSequencesThatDoNotAllFitNoneDrivesOthersOut) {
  AStore s({.memory_limit = 3 * EmptyBytes(), .evict = true});
  ASSERT_THAT(s.Create("", "a"), IsOk());
  ASSERT_THAT(s.Create("", "b"), IsOk());
  const auto held = s.store.Find("", "b", s.now).value();
  std::vector<NewSequence> wanted;
  for (const char* name : {"c", "d", "e"}) {
    wanted.push_back({testing::SmallForm(), name, "", {}});
  }
  EXPECT_THAT(s.store.Create("", wanted, s.now),
              StatusIs(kExhausted, HasSubstr("no memory for 3 sequences")));
  EXPECT_EQ(s.Figures("").evictions, 0);
  wanted.pop_back();
  EXPECT_THAT(s.store.Create("", wanted, s.now), IsOk());
  EXPECT_EQ(s.Figures("").evictions, 1);
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

// All at once, either: else one file would empty the store.
TEST(StoreEvictionTest, AFilesKeysDriveNobodyOutWhoWouldHoldLess) {
  AStore s(RoomFor(4, 1, /*evict=*/true));
  for (const std::string owner : {"small", "other"}) {
    for (const std::string name : {"a", "b"}) {
      ASSERT_THAT(s.Create(owner, name), IsOk());
      ASSERT_THAT(s.Append(owner, name, 64, 1), IsOk());
    }
  }
  NewSequence file{SmallForm(), "f", "", std::nullopt};
  file.lengths = {192};
  EXPECT_THAT(s.store.Create("greedy", file, s.now),
              StatusIs(kExhausted, ::testing::_));
  EXPECT_EQ(s.Figures("small").evictions + s.Figures("other").evictions, 0);
  file.lengths = {64};
  EXPECT_THAT(s.store.Create("greedy", file, s.now), IsOk());
  EXPECT_EQ(s.Figures("small").evictions + s.Figures("other").evictions, 1);
}

}  // namespace
}  // namespace attention::store
