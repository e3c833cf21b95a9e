#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/store/store.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/store/a_store.h"

namespace attention::store {
namespace {

using test::IsOk;
using test::StatusIs;
using testing::AStore;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// All names of a query, page by page.
std::vector<std::string> NamesOf(const AStore& s, ListQuery query) {
  std::vector<std::string> names;
  for (;;) {
    const ListedPage page = s.store.List("", query, s.now).value();
    EXPECT_LE(static_cast<int64_t>(page.sequences.size()), query.most);
    for (const Description& one : page.sequences) names.push_back(one.name);
    if (!page.next) return names;
    query.after = page.next;
  }
}

class StoreListTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const auto& [name, label] :
         std::vector<std::pair<const char*, const char*>>{{"e", "chats/2"},
                                                          {"d", "chats/1"},
                                                          {"c", "chats"},
                                                          {"b", "chats"},
                                                          {"a", "documents"},
                                                          {"f", ""}}) {
      ASSERT_THAT(s_.Create("", name, label), IsOk());
    }
  }

  AStore s_;
};

TEST_F(StoreListTest, AllInOrderOfLabelAndName) {
  for (const int64_t most : {1, 2, 5, 6, 7}) {
    EXPECT_THAT(NamesOf(s_, {.label = "", .most = most}),
                ElementsAre("f", "b", "c", "d", "e", "a"));
  }
}

TEST_F(StoreListTest, ThoseWhoseLabelBeginsSo) {
  for (const int64_t most : {1, 3, 4, 5}) {
    EXPECT_THAT(NamesOf(s_, {.label = "chats", .most = most}),
                ElementsAre("b", "c", "d", "e"));
    EXPECT_THAT(NamesOf(s_, {.label = "chats/", .most = most}),
                ElementsAre("d", "e"));
  }
  EXPECT_THAT(NamesOf(s_, {.label = "x"}), ElementsAre());
}

TEST_F(StoreListTest, APageHasNoMoreBytesThanItMay) {
  AStore s;
  std::vector<NewSequence> wanted(200);
  for (size_t n = 0; n < wanted.size(); ++n) {
    wanted[n].form.layers = 10;
    wanted[n].name = absl::StrCat("s", n + 100);
    wanted[n].label = std::string(256, 'l');
  }
  ASSERT_THAT(s.store.Create("", wanted, s.now), IsOk());
  const ListedPage page =
      s.store.List("", {.label = "", .most = 200}, s.now).value();
  const auto count = static_cast<int64_t>(page.sequences.size());
  // Label, name, ten lengths of 6 bytes, and 64 for the rest.
  EXPECT_EQ(count, Store::kMostListedBytes / (256 + 4 + 60 + 64));
  EXPECT_EQ(NamesOf(s, {.label = "", .most = 200}).size(), 200U);
}

// Sequences of many layers say much of themselves.
TEST_F(StoreListTest, APageHasOneSequenceHoweverManyLayersThatHas) {
  AStore s;
  std::vector<NewSequence> wanted(3);
  for (size_t n = 0; n < wanted.size(); ++n) {
    wanted[n].form.layers = SequenceForm::kMostLayers;
    wanted[n].name = absl::StrCat("s", n);
  }
  ASSERT_THAT(s.store.Create("", wanted, s.now), IsOk());
  const ListedPage page =
      s.store.List("", {.label = "", .most = 100}, s.now).value();
  EXPECT_EQ(page.sequences.size(), 1U);
  EXPECT_EQ(NamesOf(s, {.label = "", .most = 100}).size(), 3U);
}

TEST_F(StoreListTest, ThoseOfJustThatLabel) {
  const auto equal = ListQuery::Match::kEqual;
  EXPECT_THAT(NamesOf(s_, {.label = "chats", .match = equal, .most = 1}),
              ElementsAre("b", "c"));
  EXPECT_THAT(NamesOf(s_, {.label = "", .match = equal}), ElementsAre("f"));
}

TEST_F(StoreListTest, APlaceOutlivesTheSequenceThatWasThere) {
  const ListedPage first =
      s_.store.List("", {.label = "", .most = 2}, s_.now).value();
  ASSERT_EQ(first.next->name, "b");
  ASSERT_THAT(s_.store.Delete("", "b"), IsOk());
  EXPECT_THAT(NamesOf(s_, {.label = "", .after = first.next}),
              ElementsAre("c", "d", "e", "a"));
}

TEST_F(StoreListTest, APlaceBeforeTheLabelIsItsBeginning) {
  EXPECT_THAT(NamesOf(s_, {.label = "chats/", .after = ListPlace{"a", "z"}}),
              ElementsAre("d", "e"));
}

TEST_F(StoreListTest, HowManyHasARange) {
  for (const int64_t most : {0, 1001}) {
    EXPECT_THAT(
        s_.store.List("", {.label = "", .most = most}, s_.now),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("most: ")));
  }
}

TEST(StoreManyTest, ListsAndExpires100000Sequences) {
  AStore s;
  constexpr int64_t kMany = 100'000;
  std::vector<NewSequence> wanted;
  for (int64_t i = 0; i < kMany; ++i) {
    wanted.push_back({.form = testing::SmallForm(),
                      .label = absl::StrCat("label/", i % 7),
                      .idle_limit = std::chrono::seconds(60)});
    if (wanted.size() < 250) continue;
    ASSERT_THAT(s.store.Create("", wanted, s.now), IsOk());
    wanted.clear();
  }
  EXPECT_EQ(NamesOf(s, {.label = "label/", .most = 1000}).size(), kMany);
  EXPECT_EQ(NamesOf(s, {.label = "label/6", .most = 1000}).size(), kMany / 7);
  s.now += std::chrono::seconds(60);
  int64_t expired = 0;
  int64_t calls = 0;
  for (Expired one{.more = true}; one.more; ++calls) {
    one = s.store.Expire(s.now, 256);
    EXPECT_LE(one.sequences, 256);  // as much as anybody can have to wait for
    expired += one.sequences;
  }
  EXPECT_EQ(expired, kMany);
  EXPECT_EQ(calls, (kMany + 255) / 256);
  EXPECT_EQ(s.store.budget().held(), 0);
}

}  // namespace
}  // namespace attention::store
