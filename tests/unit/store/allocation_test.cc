// Memory that runs out in the middle of an append. Every allocation of pages
// and tables is one that returns null; here they are counted, and one of them
// does. Or the system has no more memory for slabs.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <optional>

#include "core/store/sequence.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/store/rows.h"

namespace {

// How many more allocations succeed; below 0: all.
thread_local int64_t left = -1;
thread_local bool no_mappings = false;

bool Fails() {
  if (left < 0) return false;
  return left-- == 0;
}

}  // namespace

void* operator new(size_t size, const std::nothrow_t&) noexcept {
  return Fails() ? nullptr : std::malloc(size);
}
void* operator new[](size_t size, const std::nothrow_t&) noexcept {
  return Fails() ? nullptr : std::malloc(size);
}
// In place of the C library's.
extern "C" void* mmap(void* address, size_t length, int protection, int flags,
                      int file, off_t offset) noexcept {
  if (no_mappings) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  static auto* const next =
      reinterpret_cast<decltype(&mmap)>(dlsym(RTLD_NEXT, "mmap"));
  return next(address, length, protection, flags, file, offset);
}

namespace attention::store {
namespace {

using test::IsOk;
using test::StatusIs;
using ::testing::_;
using testing::AppendRows;
using ::testing::HasSubstr;
using testing::MakeSequence;
using testing::Rows;
using testing::SmallForm;
using testing::Tags;
using testing::TagsOf;
using testing::Unlimited;

// Lets the first, the second ... allocation of an append fail, until it
// succeeds. Gives how many failed.
int64_t AppendUntilItSucceeds(Sequence& sequence, const PageBudget& budget,
                              const std::vector<uint32_t>& before,
                              const Rows& rows) {
  const int64_t held = budget.held();
  for (int64_t allocations = 0;; ++allocations) {
    left = allocations;
    const absl::StatusOr<Appended> result =
        sequence.Append(0, static_cast<int64_t>(before.size()), rows.block());
    left = -1;
    if (result.ok()) return allocations;
    EXPECT_THAT(result, StatusIs(absl::StatusCode::kResourceExhausted, _));
    EXPECT_EQ(budget.held(), held);
    EXPECT_EQ(TagsOf(sequence), before);
    if (::testing::Test::HasFailure()) return allocations;
  }
}

TEST(StoreAllocationTest, AnAppendThatFailsHalfWayChangesNothing) {
  const auto budget = Unlimited();
  const auto sequence = MakeSequence(SmallForm(), budget);
  ASSERT_THAT(AppendRows(*sequence, 100, 1), IsOk());
  // A larger table in two parts, and three pages of a slab that is there.
  EXPECT_EQ(AppendUntilItSucceeds(*sequence, *budget, Tags({{100, 1}}),
                                  Rows(SmallForm(), 100, 200, 2)),
            2 + 3);
  EXPECT_EQ(TagsOf(*sequence), Tags({{100, 1}, {200, 2}}));
}

TEST(StoreAllocationTest, ACopyOfASharedTailThatFailsChangesNothing) {
  const auto budget = Unlimited();
  const auto sequence = MakeSequence(SmallForm(), budget);
  ASSERT_THAT(AppendRows(*sequence, 100, 1), IsOk());
  const auto fork = sequence->Fork(std::nullopt).value();
  ASSERT_THAT(AppendRows(*fork, 1, 2), IsOk());
  // A table of its own, the copy and one more page.
  EXPECT_EQ(AppendUntilItSucceeds(*sequence, *budget, Tags({{100, 1}}),
                                  Rows(SmallForm(), 100, 60, 3)),
            2 + 2);
  EXPECT_EQ(TagsOf(*sequence), Tags({{100, 1}, {60, 3}}));
  EXPECT_EQ(TagsOf(*fork), Tags({{100, 1}, {1, 2}}));
}

TEST(StoreAllocationTest, AnAppendForWhichThereIsNoSlabChangesNothing) {
  const SequenceForm form = {.heads = 2, .key_width = 2048, .value_width = 512};
  const auto budget = Unlimited();
  const auto sequence = MakeSequence(form, budget);
  ASSERT_THAT(AppendRows(*sequence, 60, 1), IsOk());
  const int64_t held = budget->held();
  // The slab has a page for it, and the two others would be of another one.
  no_mappings = true;
  const auto result = AppendRows(*sequence, 140, 2);
  no_mappings = false;
  EXPECT_THAT(result, StatusIs(absl::StatusCode::kResourceExhausted,
                               HasSubstr("no memory for 3 pages")));
  EXPECT_EQ(budget->held(), held);
  EXPECT_EQ(TagsOf(*sequence), Tags({{60, 1}}));
  ASSERT_THAT(AppendRows(*sequence, 140, 2), IsOk());
  EXPECT_EQ(TagsOf(*sequence), Tags({{60, 1}, {140, 2}}));
}

TEST(StoreAllocationTest, AForkAndATruncateThatFailChangeNothing) {
  const auto budget = Unlimited();
  const auto sequence = MakeSequence(SmallForm(), budget);
  ASSERT_THAT(AppendRows(*sequence, 200, 1), IsOk());
  const int64_t held = budget->held();
  for (const int64_t allocations : {0, 1}) {
    left = allocations;
    const auto fork = sequence->Fork(std::nullopt);
    left = allocations;
    const absl::Status truncated = sequence->Truncate(10);
    left = -1;
    EXPECT_THAT(fork, StatusIs(absl::StatusCode::kResourceExhausted, _));
    EXPECT_THAT(truncated, StatusIs(absl::StatusCode::kResourceExhausted, _));
  }
  EXPECT_EQ(budget->held(), held);
  EXPECT_EQ(TagsOf(*sequence), Tags({{200, 1}}));
}

}  // namespace
}  // namespace attention::store
