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

TEST(StorePageBudgetTest, ASequenceCountsToThePage) {
  const auto budget = Unlimited();
  {
    const auto sequence = MakeSequence(SmallForm(2), budget);
    const int64_t empty = budget->held();
    EXPECT_GT(empty, 0);
    const auto held = [&] { return budget->held() - empty; };
    ASSERT_THAT(AppendRows(*sequence, 1, 1), IsOk());
    EXPECT_EQ(held(), kPage);
    ASSERT_THAT(AppendRows(*sequence, 63, 1), IsOk());
    EXPECT_EQ(held(), kPage);
    ASSERT_THAT(AppendRows(*sequence, 65, 1, 1), IsOk());
    EXPECT_EQ(held(), 3 * kPage);
    EXPECT_EQ(budget->pages(), 3);
    EXPECT_EQ(sequence->PageBytes(), 3 * kPage);
    ASSERT_THAT(AppendRows(*sequence, 100, 1), IsOk());
    ASSERT_THAT(sequence->Truncate(65), IsOk());
    EXPECT_EQ(held(), 4 * kPage);
    ASSERT_THAT(sequence->Truncate(64), IsOk());
    EXPECT_EQ(held(), 2 * kPage);
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
  EXPECT_EQ(budget->held(), 2 * empty + 2 * kPage);
  ASSERT_THAT(AppendRows(*fork, 1, 2), IsOk());
  ASSERT_THAT(AppendRows(*sequence, 1, 3), IsOk());
  EXPECT_EQ(budget->held(), 2 * empty + 3 * kPage);
  sequence.reset();
  EXPECT_EQ(budget->held(), empty + 2 * kPage);
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
  ASSERT_TRUE(budget->Reserve(budget->limit() - budget->held(), 0));
  ASSERT_THAT(AppendRows(*fork, 1, 2), IsOk());
  EXPECT_THAT(AppendRows(*sequence, 1, 3),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("no memory for 1 pages")));
  EXPECT_EQ(TagsOf(*sequence), Tags({{100, 1}}));
  EXPECT_EQ(TagsOf(*fork), Tags({{100, 1}, {1, 2}}));
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
