#include "core/cost.h"

#include <cstdint>

#include "core/validate.h"
#include "gtest/gtest.h"
#include "tests/unit/core/problem_builder.h"

namespace attention {
namespace {

using testing::ProblemBuilder;

// A server refuses what it expects to take weeks.
TEST(Work, OfManyHeadsWithoutQueriesIsNone) {
  const ProblemBuilder builder({1, int64_t{1} << 34, 0, 64}, {1, 1, 5, 64},
                               {1, 1, 5, 6});
  EXPECT_EQ(Work(*Validate(builder.problem)), 0);
}

TEST(Work, WithoutKeysIsThatOfWritingResults) {
  const ProblemBuilder builder({2, 4, 3, 8}, {2, 4, 0, 8}, {2, 4, 0, 6});
  EXPECT_EQ(Work(*Validate(builder.problem)), 2 * 4 * 3 * 6);
}

// Each of them is looked at, where nothing is written, too.
TEST(Work, WithoutKeysIsNoLessThanItsRows) {
  const ProblemBuilder builder({2, 4, 3, 8}, {2, 4, 0, 8}, {2, 4, 0, 0});
  EXPECT_EQ(Work(*Validate(builder.problem)), 2 * 4 * 3);
}

}  // namespace
}  // namespace attention
