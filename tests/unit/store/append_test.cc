#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
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
using testing::Rows;
using testing::SmallForm;
using testing::Tags;
using testing::TagsOf;

TEST(StoreAppendTest, ANewSequenceIsEmpty) {
  const auto sequence = MakeSequence(SmallForm(3));
  EXPECT_THAT(sequence->Lengths(), ElementsAre(0, 0, 0));
  ASSERT_OK_AND_ASSIGN(const Snapshot snapshot, sequence->TakeSnapshot(0));
  EXPECT_EQ(snapshot.length(), 0);
  const auto blocks = snapshot.Blocks();
  ASSERT_EQ(blocks.size(), 1);
  EXPECT_EQ(blocks[0].key.shape, Shape({1, 2, 0, 3}));
  EXPECT_EQ(blocks[0].value.shape, Shape({1, 2, 0, 5}));
}

TEST(StoreAppendTest, KeysComeBackInOrderFromAllPages) {
  const auto sequence = MakeSequence();
  for (const int64_t count : {1, 62, 1, 1, 130, 61, 64}) {
    EXPECT_THAT(AppendRows(*sequence, count, static_cast<uint32_t>(count)),
                IsOk());
  }
  EXPECT_EQ(
      TagsOf(*sequence),
      Tags({{1, 1}, {62, 62}, {1, 1}, {1, 1}, {130, 130}, {61, 61}, {64, 64}}));
  EXPECT_EQ(sequence->Pages(), 5);
}

TEST(StoreAppendTest, AnAnswerHasTheLengthAndWhatIsNew) {
  const auto sequence = MakeSequence();
  ASSERT_OK_AND_ASSIGN(const Appended first, AppendRows(*sequence, 70, 1));
  EXPECT_EQ(first.length, 70);
  EXPECT_EQ(first.new_keys, 70);
  ASSERT_OK_AND_ASSIGN(const Appended none, AppendRows(*sequence, 0, 1));
  EXPECT_EQ(none.length, 70);
  EXPECT_EQ(none.new_keys, 0);
}

TEST(StoreAppendTest, ASnapshotStaysAsItWas) {
  const auto sequence = MakeSequence();
  ASSERT_THAT(AppendRows(*sequence, 50, 1), IsOk());
  ASSERT_OK_AND_ASSIGN(const Snapshot before, sequence->TakeSnapshot(0));
  ASSERT_THAT(AppendRows(*sequence, 100, 2), IsOk());
  EXPECT_EQ(TagsOf(before), Tags({{50, 1}}));
  EXPECT_EQ(TagsOf(*sequence), Tags({{50, 1}, {100, 2}}));
}

TEST(StoreAppendTest, ASnapshotOutlivesItsSequence) {
  auto sequence = MakeSequence();
  ASSERT_THAT(AppendRows(*sequence, 100, 1), IsOk());
  ASSERT_OK_AND_ASSIGN(const Snapshot snapshot, sequence->TakeSnapshot(0));
  sequence.reset();
  EXPECT_EQ(TagsOf(snapshot), Tags({{100, 1}}));
}

TEST(StoreAppendTest, LayersHaveLengthsOfTheirOwn) {
  const auto sequence = MakeSequence(SmallForm(3));
  ASSERT_THAT(AppendRows(*sequence, 70, 1, 0), IsOk());
  ASSERT_THAT(AppendRows(*sequence, 3, 2, 2), IsOk());
  EXPECT_THAT(sequence->Lengths(), ElementsAre(70, 0, 3));
  EXPECT_EQ(TagsOf(*sequence, 2), Tags({{3, 2}}));
}

TEST(StoreAppendTest, TheSameAppendOnceMoreIsAcknowledged) {
  const auto sequence = MakeSequence();
  ASSERT_THAT(AppendRows(*sequence, 30, 1), IsOk());
  const Rows rows(SmallForm(), 30, 70, 2);
  ASSERT_THAT(sequence->Append(0, 30, rows.block()), IsOk());
  ASSERT_THAT(AppendRows(*sequence, 5, 3), IsOk());
  ASSERT_OK_AND_ASSIGN(const Appended again,
                       sequence->Append(0, 30, rows.block()));
  EXPECT_EQ(again.length, 105);
  EXPECT_EQ(again.new_keys, 0);
  EXPECT_EQ(TagsOf(*sequence), Tags({{30, 1}, {70, 2}, {5, 3}}));
}

TEST(StoreAppendTest, RowsOfWhichTheFirstAreThereAddTheRest) {
  const auto sequence = MakeSequence();
  ASSERT_THAT(AppendRows(*sequence, 60, 1), IsOk());
  const Rows rows(SmallForm(), 40, 50, 1);
  ASSERT_OK_AND_ASSIGN(const Appended both,
                       sequence->Append(0, 40, rows.block()));
  EXPECT_EQ(both.length, 90);
  EXPECT_EQ(both.new_keys, 30);
  EXPECT_EQ(TagsOf(*sequence), Tags({{90, 1}}));
}

TEST(StoreAppendTest, OtherRowsAtATakenPositionAreAborted) {
  const auto sequence = MakeSequence();
  ASSERT_THAT(AppendRows(*sequence, 100, 1), IsOk());
  // The same up to the second page, so that the last row alone differs.
  const Rows other(SmallForm(), 99, 2, 2);
  EXPECT_THAT(sequence->Append(0, 99, other.block()),
              StatusIs(absl::StatusCode::kAborted,
                       HasSubstr("position: 99 has other keys or values, "
                                 "there are 100 keys")));
  EXPECT_EQ(TagsOf(*sequence), Tags({{100, 1}}));
}

TEST(StoreAppendTest, OneOtherValueIsEnoughToBeAborted) {
  const auto sequence = MakeSequence();
  ASSERT_THAT(AppendRows(*sequence, 70, 1), IsOk());
  Tensor value = Tensor::Create(DataType::kFloat32, {2, 70, 5}).value();
  const Rows rows(SmallForm(), 0, 70, 1);
  KeyValueBlock other = rows.block();
  std::memcpy(value.data(), other.value.data, value.bytes().size());
  value.data()[value.bytes().size() - 1] ^= std::byte{1};
  other.value = value.view();
  EXPECT_THAT(sequence->Append(0, 0, other),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("position: 0")));
}

TEST(StoreAppendTest, AGapIsOutOfRange) {
  const auto sequence = MakeSequence();
  ASSERT_THAT(AppendRows(*sequence, 10, 1), IsOk());
  const Rows rows(SmallForm(), 11, 1, 1);
  EXPECT_THAT(sequence->Append(0, 11, rows.block()),
              StatusIs(absl::StatusCode::kOutOfRange,
                       HasSubstr("position: 11 leaves a gap, there are 10")));
}

TEST(StoreAppendTest, PositionsAndLayersThatCannotBeAreRefused) {
  const auto sequence = MakeSequence();
  const Rows rows(SmallForm(), 0, 1, 1);
  EXPECT_THAT(
      sequence->Append(0, -1, rows.block()),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("position: -1")));
  for (const int64_t layer : {-1, 1}) {
    EXPECT_THAT(
        sequence->Append(layer, 0, rows.block()),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("layer: ")));
    EXPECT_THAT(
        sequence->TakeSnapshot(layer),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("layer: ")));
  }
}

TEST(StoreAppendTest, AClosedSequenceSaysWhy) {
  const auto sequence = MakeSequence();
  ASSERT_THAT(AppendRows(*sequence, 10, 1), IsOk());
  sequence->Close(absl::NotFoundError("it was deleted"));
  sequence->Close(absl::NotFoundError("another reason"));
  const auto gone =
      StatusIs(absl::StatusCode::kNotFound, HasSubstr("it was deleted"));
  EXPECT_THAT(AppendRows(*sequence, 1, 1), gone);
  EXPECT_THAT(sequence->TakeSnapshot(0), gone);
  EXPECT_THAT(sequence->Truncate(0), gone);
  EXPECT_THAT(sequence->Fork(std::nullopt), gone);
  EXPECT_THAT(sequence->Lengths(), ElementsAre(0));
}

}  // namespace
}  // namespace attention::store
