#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "core/store/sequence.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/store/rows.h"

namespace attention::store {
namespace {

using test::IsOk;
using test::StatusIs;
using testing::AppendRows;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::MakeSequence;
using testing::SmallForm;
using testing::Tags;
using testing::TagsOf;
using testing::Unlimited;

std::shared_ptr<Sequence> ForkOf(const Sequence& sequence,
                                 std::optional<int64_t> length = {}) {
  return sequence.Fork(length).value();
}

// Where the keys of a page of layer 0 lie.
const std::byte* PageOf(const Sequence& sequence, size_t page) {
  return sequence.TakeSnapshot(0)->Blocks()[page].key.data;
}

TEST(StoreForkTest, AForkHasTheKeysOfAllLayers) {
  const auto sequence = MakeSequence(SmallForm(3));
  ASSERT_THAT(AppendRows(*sequence, 100, 1, 0), IsOk());
  ASSERT_THAT(AppendRows(*sequence, 3, 2, 2), IsOk());
  const auto fork = ForkOf(*sequence);
  EXPECT_EQ(fork->form(), sequence->form());
  EXPECT_THAT(fork->Lengths(), ElementsAre(100, 0, 3));
  EXPECT_EQ(TagsOf(*fork, 0), Tags({{100, 1}}));
  EXPECT_EQ(TagsOf(*fork, 2), Tags({{3, 2}}));
}

TEST(StoreForkTest, TheFirstToAppendGoesOnInTheSharedPage) {
  const auto sequence = MakeSequence();
  ASSERT_THAT(AppendRows(*sequence, 100, 1), IsOk());
  const auto fork = ForkOf(*sequence);
  ASSERT_THAT(AppendRows(*fork, 1, 2), IsOk());
  EXPECT_EQ(PageOf(*fork, 1), PageOf(*sequence, 1));
  ASSERT_THAT(AppendRows(*sequence, 1, 3), IsOk());
  EXPECT_NE(PageOf(*fork, 1), PageOf(*sequence, 1));
  EXPECT_EQ(PageOf(*fork, 0), PageOf(*sequence, 0));
  EXPECT_EQ(TagsOf(*fork), Tags({{100, 1}, {1, 2}}));
  EXPECT_EQ(TagsOf(*sequence), Tags({{100, 1}, {1, 3}}));
}

TEST(StoreForkTest, AnAppendThatFailsLeavesTheSharedPageToWhoeverIsNext) {
  const auto budget = std::make_shared<PageBudget>(64 << 10);
  const auto sequence = MakeSequence(SmallForm(), budget);
  ASSERT_THAT(AppendRows(*sequence, 100, 1), IsOk());
  const auto fork = ForkOf(*sequence);
  const int64_t pages = budget->pages();
  EXPECT_THAT(AppendRows(*fork, int64_t{64} * 100, 2),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("the limit is reached")));
  ASSERT_THAT(AppendRows(*sequence, 1, 3), IsOk());
  EXPECT_EQ(budget->pages(), pages);
  ASSERT_THAT(AppendRows(*fork, 1, 4), IsOk());
  EXPECT_EQ(budget->pages(), pages + 1);
  EXPECT_EQ(TagsOf(*sequence), Tags({{100, 1}, {1, 3}}));
  EXPECT_EQ(TagsOf(*fork), Tags({{100, 1}, {1, 4}}));
}

TEST(StoreForkTest, ManyForksGoTheirOwnWays) {
  const auto budget = Unlimited();
  const auto sequence = MakeSequence(SmallForm(), budget);
  ASSERT_THAT(AppendRows(*sequence, 90, 1), IsOk());
  std::vector<std::shared_ptr<Sequence>> forks;
  for (uint32_t tag = 10; tag < 20; ++tag) {
    forks.push_back(ForkOf(*sequence));
    ASSERT_THAT(AppendRows(*forks.back(), 50, tag), IsOk());
  }
  for (uint32_t i = 0; i < 10; ++i) {
    EXPECT_EQ(TagsOf(*forks[i]), Tags({{90, 1}, {50, 10 + i}}));
  }
  EXPECT_EQ(TagsOf(*sequence), Tags({{90, 1}}));
  // One page of all; the tail, which the first fork went on in, copied by nine;
  // a third page for each fork.
  EXPECT_EQ(budget->pages(), 1 + 1 + 9 + 10);
}

TEST(StoreForkTest, AForkOfAForkSharesToo) {
  const auto budget = Unlimited();
  auto sequence = MakeSequence(SmallForm(), budget);
  ASSERT_THAT(AppendRows(*sequence, 128, 1), IsOk());
  auto fork = ForkOf(*sequence);
  const auto second = ForkOf(*fork);
  EXPECT_EQ(budget->pages(), 2);
  sequence.reset();
  fork.reset();
  EXPECT_EQ(TagsOf(*second), Tags({{128, 1}}));
  EXPECT_EQ(budget->pages(), 2);
}

TEST(StoreForkTest, AForkOfTheFirstKeysHasThose) {
  const auto sequence = MakeSequence(SmallForm(2));
  ASSERT_THAT(AppendRows(*sequence, 100, 1, 0), IsOk());
  ASSERT_THAT(AppendRows(*sequence, 70, 1, 1), IsOk());
  const auto fork = ForkOf(*sequence, 65);
  EXPECT_THAT(fork->Lengths(), ElementsAre(65, 65));
  ASSERT_THAT(AppendRows(*fork, 5, 2), IsOk());
  EXPECT_EQ(TagsOf(*fork), Tags({{65, 1}, {5, 2}}));
  EXPECT_EQ(TagsOf(*sequence), Tags({{100, 1}}));
  EXPECT_THAT(ForkOf(*sequence, 0)->Lengths(), ElementsAre(0, 0));
}

TEST(StoreForkTest, AForkBeyondTheLengthIsOutOfRange) {
  const auto sequence = MakeSequence();
  ASSERT_THAT(AppendRows(*sequence, 10, 1), IsOk());
  EXPECT_THAT(sequence->Fork(11),
              StatusIs(absl::StatusCode::kOutOfRange,
                       HasSubstr("length: 11, there are 10 keys")));
  EXPECT_THAT(sequence->Fork(-1), StatusIs(absl::StatusCode::kInvalidArgument,
                                           HasSubstr("length: -1")));
}

TEST(StoreForkTest, AForkOf100000KeysTakesNoPage) {
  const auto budget = Unlimited();
  const auto sequence =
      MakeSequence({.heads = 1, .key_width = 1, .value_width = 1}, budget);
  ASSERT_THAT(AppendRows(*sequence, 100'000, 1), IsOk());
  EXPECT_EQ(budget->pages(), 1563);
  const auto fork = ForkOf(*sequence);
  EXPECT_EQ(budget->pages(), 1563);
  EXPECT_EQ(fork->Pages(), 1563);
  EXPECT_EQ(PageOf(*fork, 1562), PageOf(*sequence, 1562));
}

}  // namespace
}  // namespace attention::store
