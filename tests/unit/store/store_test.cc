#include "core/store/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/status_matchers.h"
#include "tests/unit/store/a_store.h"
#include "tests/unit/store/rows.h"

namespace attention::store {
namespace {

using test::IsOk;
using test::StatusIs;
using ::testing::_;
using testing::AStore;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::kNotFound;
using ::testing::MatchesRegex;
using testing::SmallForm;
using testing::SmallPage;
using testing::SmallPages;
using testing::Tags;
using testing::TagsOf;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

TEST(StoreTest, ASequenceIsFoundByItsName) {
  AStore s;
  EXPECT_EQ(s.Create("", "chat/1").value(), "chat/1");
  ASSERT_THAT(s.Append("", "chat/1", 70, 1), IsOk());
  EXPECT_EQ(TagsOf(*s.store.Find("", "chat/1", s.now).value()),
            Tags({{70, 1}}));
  EXPECT_THAT(s.store.Find("", "chat/2", s.now),
              StatusIs(kNotFound, HasSubstr("no sequence 'chat/2'")));
}

TEST(StoreTest, NamesThatItMakesAre128RandomBits) {
  AStore s;
  const std::string first = s.Create("", "").value();
  const std::string second = s.Create("", "").value();
  EXPECT_THAT(first, MatchesRegex("[0-9a-f]{32}"));
  EXPECT_NE(first, second);
  EXPECT_THAT(s.store.Find("", first, s.now), IsOk());
}

TEST(StoreTest, SeveralAreMadeAtOnceOrNone) {
  AStore s;
  ASSERT_THAT(s.Create("", "b"), IsOk());
  const auto create = [&](const std::vector<std::string>& names) {
    std::vector<NewSequence> wanted;
    wanted.reserve(names.size());
    for (const std::string& name : names) wanted.push_back({SmallForm(), name});
    return s.store.Create("", wanted, s.now);
  };
  EXPECT_THAT(create({"a", "b"}), StatusIs(absl::StatusCode::kAlreadyExists,
                                           HasSubstr("sequences[1]: name: ")));
  EXPECT_THAT(create({"a", "a"}),
              StatusIs(absl::StatusCode::kAlreadyExists, _));
  EXPECT_EQ(s.Figures("").sequences, 1);
  EXPECT_THAT(create({"a", "c"}).value(), ElementsAre("a", "c"));
  EXPECT_THAT(create({"d", "e e"}),
              StatusIs(kInvalid, HasSubstr("sequences[1]: name: 'e e'")));
  EXPECT_THAT(create(std::vector<std::string>(257)),
              StatusIs(kInvalid, HasSubstr("sequences: 257")));
}

TEST(StoreTest, NamesAndLabelsThatCannotBeAreRefused) {
  AStore s;
  for (const std::string& name :
       {std::string("a b"), std::string("\n"), std::string(257, 'a')}) {
    EXPECT_THAT(s.Create("", name), StatusIs(kInvalid, HasSubstr("name: '")));
  }
  EXPECT_THAT(s.Create("", std::string(256, 'a')), IsOk());
  EXPECT_THAT(s.Create("", "a", std::string(257, 'l')),
              StatusIs(kInvalid, HasSubstr("label: 257 bytes")));
  EXPECT_THAT(s.Create("", "a", "", Duration::zero()),
              StatusIs(kInvalid, HasSubstr("idle_limit")));
}

TEST(StoreTest, OtherOwnersDoNotSeeIt) {
  AStore s;
  ASSERT_THAT(s.Create("alice", "x"), IsOk());
  const auto gone = StatusIs(kNotFound, HasSubstr("no sequence 'x'"));
  EXPECT_THAT(s.store.Find("bob", "x", s.now), gone);
  EXPECT_THAT(s.store.Describe("bob", "x", s.now), gone);
  EXPECT_THAT(s.store.Fork("bob", "x", {}, s.now), gone);
  EXPECT_THAT(s.store.Truncate("bob", "x", 0, s.now), gone);
  EXPECT_THAT(s.store.Delete("bob", "x"), gone);
  EXPECT_THAT(s.store.List("bob", {}, s.now)->sequences, ElementsAre());
  // They may have one of that name themselves.
  ASSERT_THAT(s.Create("bob", "x"), IsOk());
  ASSERT_THAT(s.Append("bob", "x", 5, 2), IsOk());
  EXPECT_THAT(s.store.Describe("alice", "x", s.now)->lengths, ElementsAre(0));
}

TEST(StoreTest, ADeletedSequenceIsGoneForThoseWhoHoldItToo) {
  AStore s;
  ASSERT_THAT(s.Create("", "x"), IsOk());
  ASSERT_THAT(s.Append("", "x", 70, 1), IsOk());
  const auto held = s.store.Find("", "x", s.now).value();
  const Snapshot snapshot = held->TakeSnapshot(0).value();
  EXPECT_THAT(s.store.Delete("", "x"), IsOk());
  EXPECT_THAT(s.store.Find("", "x", s.now), StatusIs(kNotFound, _));
  EXPECT_THAT(testing::AppendRows(*held, 1, 1),
              StatusIs(kNotFound, HasSubstr("'x' was deleted")));
  EXPECT_EQ(TagsOf(snapshot), Tags({{70, 1}}));
  EXPECT_THAT(s.Create("", "x"), IsOk());
  EXPECT_THAT(s.store.Describe("", "x", s.now)->lengths, ElementsAre(0));
}

TEST(StoreTest, WhoHasASequenceDoesNotTakeAnotherOfItsNameForIt) {
  AStore s;
  ASSERT_THAT(s.Create("", "x"), IsOk());
  const auto held = s.store.Find("", "x", s.now).value();
  ASSERT_THAT(s.store.Delete("", "x"), IsOk());
  ASSERT_THAT(s.Create("", "x"), IsOk());
  const testing::Rows rows(testing::SmallForm(), 0, 1, 1);
  const auto deleted = StatusIs(kNotFound, HasSubstr("'x' was deleted"));
  EXPECT_THAT(s.store.Append("", "x", 0, {}, rows.block(), s.now, held.get()),
              deleted);
  EXPECT_THAT(s.store.Delete("", "x", held.get()), deleted);
  EXPECT_THAT(s.store.Describe("", "x", s.now)->lengths, ElementsAre(0));
}

TEST(StoreTest, AllOfAPrefixAreDeleted) {
  AStore s;
  for (const char* name : {"x", "x:", "x:0", "x:10", "x:2/y", "y:0"}) {
    ASSERT_THAT(s.Create("", name), IsOk());
  }
  ASSERT_THAT(s.Create("bob", "x:0"), IsOk());
  const auto held = s.store.Find("", "x:10", s.now).value();
  s.store.DeleteAll("", "x:");
  EXPECT_EQ(s.store.List("", {}, s.now)->sequences.size(), 2U);
  EXPECT_THAT(s.store.Describe("", "x", s.now), IsOk());
  EXPECT_THAT(s.store.Describe("bob", "x:0", s.now), IsOk());
  EXPECT_THAT(testing::AppendRows(*held, 1, 1),
              StatusIs(kNotFound, HasSubstr("'x:10' was deleted")));
  EXPECT_EQ(s.Figures("").deletions, 4);
  s.store.DeleteAll("carol", "x:");
}

TEST(StoreTest, AllOfAPrefixStayWhereOneIsNotThereAnyMore) {
  AStore s;
  ASSERT_THAT(s.Create("", "x:0"), IsOk());
  const auto old = s.store.Find("", "x:0", s.now).value();
  ASSERT_THAT(s.store.Delete("", "x:0"), IsOk());
  ASSERT_THAT(s.Create("", "x:0"), IsOk());
  ASSERT_THAT(s.Create("", "x:1"), IsOk());
  s.store.DeleteAll("", "x:", old.get());
  EXPECT_EQ(s.store.List("", {}, s.now)->sequences.size(), 2U);
  const auto now_there = s.store.Find("", "x:0", s.now).value();
  s.store.DeleteAll("", "x:", now_there.get());
  EXPECT_EQ(s.store.List("", {}, s.now)->sequences.size(), 0U);
}

TEST(StoreTest, AForkIsAsWhatWasForked) {
  AStore s;
  ASSERT_THAT(s.Create("", "x", "chats", std::chrono::seconds(9)), IsOk());
  ASSERT_THAT(s.Append("", "x", 70, 1), IsOk());
  EXPECT_EQ(s.store.Fork("", "x", {.name = "y"}, s.now).value(), "y");
  ASSERT_OK_AND_ASSIGN(const Description y, s.store.Describe("", "y", s.now));
  EXPECT_EQ(y.label, "chats");
  EXPECT_EQ(y.idle_limit, std::chrono::seconds(9));
  EXPECT_THAT(y.lengths, ElementsAre(70));
  ASSERT_OK_AND_ASSIGN(
      const std::string made,
      s.store.Fork("", "x",
                   {.length = 3, .label = "", .idle_limit = Duration::max()},
                   s.now));
  ASSERT_OK_AND_ASSIGN(const Description z, s.store.Describe("", made, s.now));
  EXPECT_EQ(z.label, "");
  EXPECT_EQ(z.idle_limit, Duration::max());
  EXPECT_THAT(z.lengths, ElementsAre(3));
  EXPECT_THAT(s.store.Fork("", "x", {.name = "y"}, s.now),
              StatusIs(absl::StatusCode::kAlreadyExists, _));
}

TEST(StoreTest, TellsWhatASequenceIs) {
  AStore s;
  ASSERT_THAT(s.Create("", "x", "chats"), IsOk());
  ASSERT_THAT(s.Append("", "x", 65, 1), IsOk());
  s.now += std::chrono::seconds(5);
  ASSERT_OK_AND_ASSIGN(const Description x, s.store.Describe("", "x", s.now));
  EXPECT_EQ(x.name, "x");
  EXPECT_EQ(x.label, "chats");
  EXPECT_EQ(x.form, SmallForm());
  EXPECT_THAT(x.lengths, ElementsAre(65));
  EXPECT_EQ(x.page_bytes, 2 * SmallPage());
  EXPECT_EQ(x.idle_limit, std::nullopt);
  EXPECT_EQ(x.idle, std::chrono::seconds(5));
}

TEST(StoreTest, CountsForEachOwner) {
  AStore s;
  ASSERT_THAT(s.Create("alice", "x"), IsOk());
  const int64_t empty = s.Figures("alice").bytes;
  ASSERT_THAT(s.Append("alice", "x", 65, 1), IsOk());
  ASSERT_THAT(s.Append("alice", "x", 5, 1), IsOk());
  ASSERT_THAT(s.store.Fork("alice", "x", {.name = "y"}, s.now), IsOk());
  ASSERT_THAT(s.Create("bob", "x"), IsOk());
  ASSERT_THAT(s.store.Delete("bob", "x"), IsOk());
  const OwnerFigures alice = s.Figures("alice");
  EXPECT_EQ(alice.bytes,
            2 * empty + SmallPages(2) + PageTable::CountedBytes(2));
  EXPECT_EQ(alice.pages, 2);
  EXPECT_EQ(alice.sequences, 2);
  EXPECT_EQ(alice.created, 2);
  EXPECT_EQ(alice.forks, 1);
  EXPECT_EQ(alice.appended_keys, 70);
  const OwnerFigures bob = s.Figures("bob");
  EXPECT_EQ(bob.bytes, 0);
  EXPECT_EQ(bob.sequences, 0);
  EXPECT_EQ(bob.deletions, 1);
  EXPECT_EQ(s.store.budget().held(), alice.bytes);
}

}  // namespace
}  // namespace attention::store
