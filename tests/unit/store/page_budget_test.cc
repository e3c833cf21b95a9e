#include "core/store/page_budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "core/store/page.h"
#include "core/store/sequence.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/store/rows.h"

namespace attention::store {
namespace {

using test::IsOk;
using test::StatusIs;
using testing::AppendRows;
using ::testing::HasSubstr;
using testing::MakeSequence;
using testing::SmallForm;
using testing::Tags;
using testing::TagsOf;
using testing::Unlimited;

// What a page of SmallForm() counts.
const int64_t kPage = Page::CountedBytes(int64_t{2} * 64 * (3 + 5) * 4);
// And a table with places for so many.
int64_t Table(int64_t places) { return PageTable::CountedBytes(places); }

TEST(StorePageBudgetTest, ReservesUpToItsLimit) {
  PageBudget budget(100);
  EXPECT_TRUE(budget.Reserve(60, 1));
  EXPECT_FALSE(budget.Reserve(41, 1));
  EXPECT_EQ(budget.held(), 60);
  EXPECT_EQ(budget.pages(), 1);
  EXPECT_TRUE(budget.Reserve(40, 0));
  budget.Release(60, 1);
  EXPECT_EQ(budget.held(), 40);
  EXPECT_EQ(budget.pages(), 0);
}

TEST(StorePageBudgetTest, CountsInTheOneAboveToo) {
  const auto all = std::make_shared<PageBudget>(100);
  PageBudget one(80, all);
  PageBudget other(PageBudget::kUnlimited, all);
  EXPECT_FALSE(one.Reserve(81, 0));
  EXPECT_TRUE(one.Reserve(80, 2));
  EXPECT_FALSE(other.Reserve(21, 0));
  EXPECT_EQ(other.held(), 0);
  EXPECT_TRUE(other.Reserve(20, 1));
  EXPECT_EQ(all->held(), 100);
  EXPECT_EQ(all->pages(), 3);
  one.Release(80, 2);
  EXPECT_EQ(all->held(), 20);
}

TEST(StorePageBudgetTest, TakesWhatIsNotFree) {
  const auto all = std::make_shared<PageBudget>(100);
  PageBudget one(100, all);
  ASSERT_TRUE(one.Reserve(90, 0));
  one.Take(20);
  EXPECT_EQ(one.held(), 110);
  EXPECT_EQ(all->held(), 110);
  EXPECT_FALSE(one.Reserve(1, 0));
  one.Release(90, 0);
  EXPECT_TRUE(one.Reserve(80, 0));
}

TEST(StorePageBudgetTest, ASequenceCountsToThePage) {
  const auto budget = Unlimited();
  {
    const auto sequence = MakeSequence(SmallForm(2), budget);
    const int64_t empty = budget->held();
    EXPECT_GT(empty, 0);
    const auto held = [&] { return budget->held() - empty; };
    ASSERT_THAT(AppendRows(*sequence, 1, 1), IsOk());
    EXPECT_EQ(held(), kPage + Table(1));
    ASSERT_THAT(AppendRows(*sequence, 63, 1), IsOk());
    EXPECT_EQ(held(), kPage + Table(1));
    ASSERT_THAT(AppendRows(*sequence, 65, 1, 1), IsOk());
    EXPECT_EQ(held(), 3 * kPage + Table(1) + Table(2));
    EXPECT_EQ(budget->pages(), 3);
    EXPECT_EQ(sequence->PageBytes(), 3 * kPage);
    ASSERT_THAT(AppendRows(*sequence, 100, 1), IsOk());
    ASSERT_THAT(sequence->Truncate(65), IsOk());
    EXPECT_EQ(held(), 4 * kPage + 2 * Table(2));
    ASSERT_THAT(sequence->Truncate(64), IsOk());
    EXPECT_EQ(held(), 2 * kPage + 2 * Table(1));
  }
  EXPECT_EQ(budget->held(), 0);
  EXPECT_EQ(budget->pages(), 0);
}

TEST(StorePageBudgetTest, SharedPagesCountOnceUntilTheLastHolderIsGone) {
  const auto budget = Unlimited();
  auto sequence = MakeSequence(SmallForm(), budget);
  const int64_t empty = budget->held();
  ASSERT_THAT(AppendRows(*sequence, 100, 1), IsOk());
  auto fork = sequence->Fork(std::nullopt).value();
  EXPECT_EQ(budget->held(), 2 * empty + 2 * kPage + 2 * Table(2));
  ASSERT_THAT(AppendRows(*fork, 1, 2), IsOk());
  ASSERT_THAT(AppendRows(*sequence, 1, 3), IsOk());
  EXPECT_EQ(budget->held(), 2 * empty + 3 * kPage + 2 * Table(2));
  sequence.reset();
  EXPECT_EQ(budget->held(), empty + 2 * kPage + Table(2));
  fork.reset();
  EXPECT_EQ(budget->held(), 0);
}

TEST(StorePageBudgetTest, ASnapshotHoldsWhatItsSequenceHasLetGo) {
  const auto budget = Unlimited();
  const auto sequence = MakeSequence(SmallForm(), budget);
  ASSERT_THAT(AppendRows(*sequence, 100, 1), IsOk());
  auto snapshot = sequence->TakeSnapshot(0);
  ASSERT_THAT(snapshot, IsOk());
  sequence->Close(absl::NotFoundError("gone"));
  EXPECT_EQ(budget->pages(), 2);
  EXPECT_EQ(TagsOf(*snapshot), Tags({{100, 1}}));
  snapshot = absl::NotFoundError("gone");
  EXPECT_EQ(budget->pages(), 0);
}

TEST(StorePageBudgetTest, AnAppendBeyondTheLimitLeavesAllAsItWas) {
  const auto budget = std::make_shared<PageBudget>(4 * kPage);
  const auto sequence = MakeSequence(SmallForm(), budget);
  ASSERT_THAT(AppendRows(*sequence, 100, 1), IsOk());
  const int64_t held = budget->held();
  EXPECT_THAT(AppendRows(*sequence, 200, 2),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("no memory for 3 pages of 4096 bytes")));
  EXPECT_EQ(budget->held(), held);
  EXPECT_EQ(TagsOf(*sequence), Tags({{100, 1}}));
  // What is free may still be had, the last page's rows among them.
  EXPECT_THAT(AppendRows(*sequence, 28, 3), IsOk());
  EXPECT_EQ(TagsOf(*sequence), Tags({{100, 1}, {28, 3}}));
}

TEST(StorePageBudgetTest, ASharedTailThatCannotBeCopiedStaysAsItWas) {
  const auto budget = std::make_shared<PageBudget>(4 * kPage);
  const auto sequence = MakeSequence(SmallForm(), budget);
  ASSERT_THAT(AppendRows(*sequence, 100, 1), IsOk());
  const auto fork = sequence->Fork(std::nullopt).value();
  // But for the table that the copy is to have a place in.
  const int64_t free = budget->limit() - budget->held() - Table(2);
  ASSERT_TRUE(budget->Reserve(free, 0));
  ASSERT_THAT(AppendRows(*fork, 1, 2), IsOk());
  EXPECT_THAT(AppendRows(*sequence, 1, 3),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("no memory for 1 pages")));
  EXPECT_EQ(TagsOf(*sequence), Tags({{100, 1}}));
  EXPECT_EQ(TagsOf(*fork), Tags({{100, 1}, {1, 2}}));
}

TEST(StorePageBudgetTest, AForkWithoutMemoryForItsTableIsRefused) {
  const auto budget = Unlimited();
  const auto sequence = MakeSequence(SmallForm(), budget);
  const int64_t own = budget->held();
  ASSERT_THAT(AppendRows(*sequence, int64_t{64} * 1000, 1), IsOk());
  const auto small = std::make_shared<PageBudget>(
      budget->held() + own + Table(999), /*above=*/nullptr);
  const auto other = MakeSequence(SmallForm(), small);
  ASSERT_THAT(AppendRows(*other, int64_t{64} * 1000, 1), IsOk());
  const int64_t held = small->held();
  EXPECT_THAT(other->Fork(std::nullopt),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("no memory for a table of 1000 pages")));
  EXPECT_EQ(small->held(), held);
  EXPECT_THAT(other->Fork(int64_t{64} * 999), IsOk());
}

TEST(StorePageBudgetTest, KeysMayBeLetGoOfWhereTheLimitIsReached) {
  const auto budget = std::make_shared<PageBudget>(8 * kPage);
  const auto sequence = MakeSequence(SmallForm(), budget);
  ASSERT_THAT(AppendRows(*sequence, int64_t{64} * 5, 1), IsOk());
  ASSERT_TRUE(budget->Reserve(budget->limit() - budget->held(), 0));
  EXPECT_THAT(sequence->Truncate(int64_t{64} * 4), IsOk());
  EXPECT_LT(budget->held(), budget->limit() - kPage);
}

TEST(StorePageBudgetTest, ASequenceItselfCounts) {
  const auto budget = std::make_shared<PageBudget>(5000);
  const auto sequence = MakeSequence(SmallForm(), budget);
  EXPECT_THAT(Sequence::Create(SmallForm(4096), budget),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("no memory for a sequence")));
  EXPECT_THAT(
      Sequence::Create(SmallForm(), budget, /*more_bytes=*/5000),
      StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("sequence")));
}

}  // namespace
}  // namespace attention::store
