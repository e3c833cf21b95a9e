#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>

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
using testing::EmptyBytes;
using ::testing::HasSubstr;
using testing::kExhausted;
using testing::kNotFound;
using ::testing::Not;
using testing::RoomFor;
using testing::SmallPage;
using testing::SmallPages;
using testing::Tags;
using testing::TagsOf;

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

bool NeverFits(const absl::Status& status) {
  return absl::IsResourceExhausted(status) && status.GetPayload(kNeverFits);
}

// The table of 8 pages is full, and stays until the one of 16 takes its place.
TEST(StoreLimitTest, AnAppendWhoseTableNeverFitsSaysSo) {
  const int64_t enough =
      EmptyBytes() + SmallPages(8) + SmallPage() + PageTable::CountedBytes(16);
  for (const int64_t missing : {0, 1}) {
    AStore s({.memory_limit = enough - missing, .evict = false});
    ASSERT_THAT(s.Create("", "a"), IsOk());
    ASSERT_THAT(s.Append("", "a", int64_t{64} * 8, 1), IsOk());
    EXPECT_EQ(NeverFits(s.Append("", "a", 1, 2).status()), missing > 0);
  }
}

// A table of 5 pages that was appended to has 8 places.
TEST(StoreLimitTest, AForkBesideATableWithFreePlacesThatNeverFitsSaysSo) {
  const auto fill = [](AStore& s) {
    ASSERT_THAT(s.Create("", "a"), IsOk());
    ASSERT_THAT(s.Append("", "a", int64_t{64} * 4, 1), IsOk());
    ASSERT_THAT(s.Append("", "a", 64, 1), IsOk());
  };
  AStore measured;
  fill(measured);
  const int64_t enough = measured.store.budget().held() + EmptyBytes() +
                         PageTable::CountedBytes(5);
  for (const int64_t missing : {0, 1}) {
    AStore s({.memory_limit = enough - missing, .evict = false});
    fill(s);
    const auto fork = s.store.Fork("", "a", {.name = "f"}, s.now);
    EXPECT_EQ(NeverFits(fork.status()), missing > 0);
  }
}

TEST(StoreLimitTest, WithoutOwnersNobodyIsNamed) {
  AStore s(RoomFor(1, 1, /*evict=*/false));
  ASSERT_THAT(s.Create("", "a"), IsOk());
  EXPECT_THAT(s.Append("", "a", 65, 1),
              StatusIs(kExhausted, AllOf(HasSubstr("sequences hold "),
                                         Not(HasSubstr("most of them")))));
}

}  // namespace
}  // namespace attention::store
