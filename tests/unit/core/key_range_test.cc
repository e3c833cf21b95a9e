#include <gtest/gtest.h>

#include <limits>

#include "core/validate.h"
#include "tests/unit/core/problem_builder.h"

namespace attention {
namespace {

using testing::ProblemBuilder;

constexpr int64_t kFarthest = int64_t{1} << 62;

// Lq = 4, Lk = 6.
class KeyRangeTest : public ::testing::Test {
 protected:
  KeyRange Of(int64_t row) {
    const auto valid = Validate(builder_.problem);
    EXPECT_TRUE(valid.ok()) << valid.status();
    return KeysInRange(*valid, 0, row);
  }
  void Expect(int64_t row, int64_t begin, int64_t end) {
    const KeyRange range = Of(row);
    if (begin == end) {
      EXPECT_EQ(range.begin, range.end) << "row " << row;
    } else {
      EXPECT_EQ(range.begin, begin) << "row " << row;
      EXPECT_EQ(range.end, end) << "row " << row;
    }
  }
  Masks& masks() { return builder_.problem.masks; }

  ProblemBuilder builder_{{4, 2}, {6, 2}, {6, 3}};
};

TEST_F(KeyRangeTest, IsEverythingWithoutMasks) { Expect(2, 0, 6); }

TEST_F(KeyRangeTest, TopLeftCausalEndsAtTheRow) {
  masks().causal = Causal::kTopLeft;
  Expect(0, 0, 1);
  Expect(3, 0, 4);
}

TEST_F(KeyRangeTest, BottomRightCausalLetsTheLastRowSeeAll) {
  masks().causal = Causal::kBottomRight;
  Expect(0, 0, 3);
  Expect(3, 0, 6);
}

TEST_F(KeyRangeTest, BottomRightLeavesEarlyRowsNothingWhereKeysAreFew) {
  ProblemBuilder few({4, 2}, {2, 2}, {2, 3});
  few.problem.masks.causal = Causal::kBottomRight;
  const auto valid = Validate(few.problem);
  ASSERT_TRUE(valid.ok());
  EXPECT_EQ(KeysInRange(*valid, 0, 1).end, 0);
  EXPECT_EQ(KeysInRange(*valid, 0, 2).end, 1);
}

TEST_F(KeyRangeTest, OffsetsPlaceTheQueriesAndKeys) {
  masks().causal = Causal::kTopLeft;
  masks().query_offset = 10;
  masks().key_offset = 8;
  Expect(0, 0, 3);
  Expect(3, 0, 6);
}

TEST_F(KeyRangeTest, OffsetsOfBatchEntriesPlaceEachOfThem) {
  ProblemBuilder two({2, 4, 2}, {2, 6, 2}, {2, 6, 3});
  two.problem.masks.causal = Causal::kTopLeft;
  two.problem.masks.query_offsets = two.Ints({2}, {1, -2});
  two.problem.masks.key_offset = -1;
  const auto valid = Validate(two.problem);
  ASSERT_TRUE(valid.ok()) << valid.status();
  EXPECT_EQ(KeysInRange(*valid, 0, 2).end, 5);
  EXPECT_EQ(KeysInRange(*valid, 1, 2).end, 2);
  EXPECT_EQ(RowPosition(*valid, 0, 2), 4);
  EXPECT_EQ(RowPosition(*valid, 1, 0), -1);
}

TEST_F(KeyRangeTest, PositionsDoNotOverflowEither) {
  masks().query_offset = kFarthest;
  masks().key_offset = -kFarthest;
  EXPECT_EQ(RowPosition(*Validate(builder_.problem), 0, 3), 0x1p63);
}

TEST_F(KeyRangeTest, OffsetsMayLeaveNothing) {
  masks().causal = Causal::kTopLeft;
  masks().key_offset = 100;
  Expect(3, 0, 0);
}

TEST_F(KeyRangeTest, WindowReachesBothWaysWithoutCausal) {
  masks().window = {1, 2};
  Expect(0, 0, 3);
  Expect(3, 2, 6);
}

TEST_F(KeyRangeTest, WindowOfZeroIsTheDiagonal) {
  masks().window = {0, 0};
  Expect(2, 2, 3);
}

TEST_F(KeyRangeTest, CausalCutsTheWindowsRight) {
  masks().causal = Causal::kTopLeft;
  masks().window = {1, 3};
  Expect(2, 1, 3);
}

TEST_F(KeyRangeTest, WindowFollowsTheBottomRightPosition) {
  masks().causal = Causal::kBottomRight;
  masks().window.left = 1;
  Expect(0, 1, 3);
}

TEST_F(KeyRangeTest, LengthsCutAndDoNotMovePositions) {
  masks().valid_lens = builder_.Ints({1, 4}, {0, 2, 6, 3});
  masks().causal = Causal::kBottomRight;
  Expect(0, 0, 0);
  Expect(1, 0, 2);
  Expect(2, 0, 5);
  Expect(3, 0, 3);
}

TEST_F(KeyRangeTest, DoesNotOverflowAtTheFarthestPositions) {
  masks().causal = Causal::kTopLeft;
  masks().query_offset = kFarthest;
  masks().key_offset = -kFarthest;
  masks().window.right = std::numeric_limits<int64_t>::max();
  Expect(3, 0, 6);
  // Row 3 stands 2^63 + 3 key indices from the first key; 64 bits would wrap.
  masks().window.left = std::numeric_limits<int64_t>::max();
  Expect(3, 4, 6);
  masks().query_offset = -kFarthest;
  masks().key_offset = kFarthest;
  Expect(3, 0, 0);
}

}  // namespace
}  // namespace attention
