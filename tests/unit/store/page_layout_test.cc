#include "core/store/page_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "core/store/sequence.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/store/rows.h"

namespace attention::store {
namespace {

using test::IsOk;
using test::StatusIs;
using ::testing::HasSubstr;
using testing::MakeSequence;
using testing::Rows;
using testing::SmallForm;
using testing::Tags;
using testing::TagsOf;

// The same elements in memory in which extents come in another order: given
// which of them, outermost first.
struct Reordered {
  Tensor memory;
  TensorView view;
};

Reordered InOrder(const TensorView& from, const std::vector<size_t>& order) {
  Shape shape;
  for (const size_t extent : order) shape.push_back(from.shape[extent]);
  Reordered made{Tensor::Create(from.type, shape).value(), from};
  const Shape strides = ContiguousStrides(shape, ByteSize(from.type));
  for (size_t i = 0; i < order.size(); ++i) {
    made.view.strides[order[i]] = strides[i];
  }
  made.view.data = made.memory.data();
  const auto bytes = static_cast<size_t>(ByteSize(from.type));
  for (int64_t h = 0; h < from.shape[0]; ++h) {
    for (int64_t n = 0; n < from.shape[1]; ++n) {
      for (int64_t d = 0; d < from.shape[2]; ++d) {
        const auto at = [&](const TensorView& view) {
          return h * view.strides[0] + n * view.strides[1] +
                 d * view.strides[2];
        };
        std::memcpy(made.memory.data() + at(made.view), from.data + at(from),
                    bytes);
      }
    }
  }
  return made;
}

TEST(StorePageLayoutTest, TakesRowsInAnyOrderOfMemory) {
  const Rows rows(SmallForm(), 0, 100, 7);
  for (const std::vector<size_t>& order :
       {std::vector<size_t>{1, 0, 2}, {2, 1, 0}, {0, 2, 1}}) {
    const auto sequence = MakeSequence();
    const Reordered key = InOrder(rows.block().key, order);
    const Reordered value = InOrder(rows.block().value, order);
    EXPECT_THAT(sequence->Append(0, 0, {key.view, value.view}), IsOk());
    EXPECT_EQ(TagsOf(*sequence), Tags({{100, 7}}));
    // And compares them alike.
    EXPECT_THAT(sequence->Append(0, 0, rows.block()), IsOk());
  }
}

TEST(StorePageLayoutTest, TakesRowsWithAFirstExtentOfOne) {
  const auto sequence = MakeSequence();
  const Rows rows(SmallForm(), 0, 65, 7);
  const KeyValueBlock wide = {
      ContiguousView(DataType::kFloat32, {1, 2, 65, 3}, rows.block().key.data),
      ContiguousView(DataType::kFloat32, {1, 2, 65, 5},
                     rows.block().value.data)};
  EXPECT_THAT(sequence->Append(0, 0, wide), IsOk());
  EXPECT_EQ(TagsOf(*sequence), Tags({{65, 7}}));
}

TEST(StorePageLayoutTest, HoldsEveryType) {
  for (const DataType type :
       {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16,
        DataType::kInt8, DataType::kFloat8}) {
    SequenceForm form = SmallForm();
    form.type = type;
    const auto sequence = MakeSequence(form);
    EXPECT_THAT(testing::AppendRows(*sequence, 130, 7), IsOk());
    EXPECT_EQ(TagsOf(*sequence), Tags({{130, 7}}));
    EXPECT_EQ(sequence->TakeSnapshot(0)->Blocks()[0].value.type, type);
  }
}

SequenceForm ScaledForm() {
  SequenceForm form = SmallForm();
  form.type = DataType::kInt8;
  return form;
}

TEST(StorePageLayoutTest, TakesScalesInAnyOrderOfMemory) {
  const auto sequence = MakeSequence(ScaledForm());
  const Rows rows(ScaledForm(), 0, 100, 7);
  KeyValueBlock block = rows.block();
  // As tokens come: (n, heads).
  std::vector<float> tokens(200);
  for (int64_t n = 0; n < 100; ++n) {
    for (int64_t head = 0; head < 2; ++head) {
      std::memcpy(&tokens[static_cast<size_t>(n * 2 + head)],
                  block.key_scale->data + (head * 100 + n) * 4, 4);
    }
  }
  block.key_scale->data = reinterpret_cast<const std::byte*>(tokens.data());
  block.key_scale->strides = {4, 8};
  EXPECT_THAT(sequence->Append(0, 0, block), IsOk());
  EXPECT_EQ(TagsOf(*sequence), Tags({{100, 7}}));
}

TEST(StorePageLayoutTest, AnotherScaleAtATakenPositionIsAnotherKey) {
  const auto sequence = MakeSequence(ScaledForm());
  const Rows rows(ScaledForm(), 0, 3, 7);
  ASSERT_THAT(sequence->Append(0, 0, rows.block()), IsOk());
  EXPECT_THAT(sequence->Append(0, 0, rows.block()), IsOk());
  const Tensor others = Tensor::FromFloats({2, 3}, {1, 1, 1, 1, 1, 1});
  KeyValueBlock block = rows.block();
  block.value_scale = others.view();
  EXPECT_THAT(sequence->Append(0, 0, block),
              StatusIs(absl::StatusCode::kAborted,
                       HasSubstr("position: 0 has other keys or values")));
}

TEST(StorePageLayoutTest, APageOfScaledKeysHasTheirScales) {
  EXPECT_EQ(PageLayout(ScaledForm()).page_bytes(),
            2 * kPageKeys * (3 + 5 + 2 * 4));
}

TEST(StorePageLayoutTest, RefusesScalesThatDoNotFitTheKeys) {
  const PageLayout layout(ScaledForm());
  const Rows rows(ScaledForm(), 0, 4, 7);
  const auto refused = [](const std::string& text) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text));
  };
  KeyValueBlock missing = rows.block();
  missing.value_scale.reset();
  EXPECT_THAT(layout.CheckRows(missing), refused("value_scale: missing"));
  KeyValueBlock turned = rows.block();
  turned.key_scale->shape = {4, 2};
  EXPECT_THAT(layout.CheckRows(turned),
              refused("key_scale: shape [4, 2] (expected [2, 4]"));
  const Tensor negative = Tensor::FromFloats({2, 4}, {1, 1, 1, 1, 1, -1, 1, 1});
  KeyValueBlock below = rows.block();
  below.key_scale = negative.view();
  EXPECT_THAT(layout.CheckRows(below),
              refused("key_scale: -1 for row 1 of head 1"));
  const Rows plain(SmallForm(), 0, 4, 7);
  KeyValueBlock given = plain.block();
  given.key_scale = rows.block().key_scale;
  EXPECT_THAT(PageLayout(SmallForm()).CheckRows(given),
              refused("key_scale: was given beside FP32"));
}

TEST(StorePageLayoutTest, HoldsKeysWithoutValues) {
  SequenceForm form = SmallForm();
  form.value_width = 0;
  const auto sequence = MakeSequence(form);
  EXPECT_THAT(testing::AppendRows(*sequence, 70, 7), IsOk());
  EXPECT_EQ(TagsOf(*sequence), Tags({{70, 7}}));
}

TEST(StorePageLayoutTest, EveryPartOfAPageIsAligned) {
  const auto sequence = MakeSequence({.heads = 1,
                                      .key_width = 1,
                                      .value_width = 1,
                                      .type = DataType::kFloat16});
  EXPECT_THAT(testing::AppendRows(*sequence, 130, 7), IsOk());
  const Snapshot snapshot = sequence->TakeSnapshot(0).value();
  for (const KeyValueBlock& block : snapshot.Blocks()) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block.key.data) % 64, 0);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block.value.data) % 64, 0);
  }
}

TEST(StorePageLayoutTest, RefusesRowsOfAnotherForm) {
  const PageLayout layout(SmallForm());
  const Rows rows(SmallForm(), 0, 4, 7);
  const auto with = [&](Shape key, Shape value) {
    KeyValueBlock block = rows.block();
    block.key.shape = std::move(key);
    block.value.shape = std::move(value);
    return layout.CheckRows(block);
  };
  const auto refused = [](const std::string& text) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text));
  };
  EXPECT_THAT(with({2, 4, 3}, {2, 4, 5}), IsOk());
  EXPECT_THAT(with({1, 4, 3}, {2, 4, 5}), refused("key: shape [1, 4, 3]"));
  EXPECT_THAT(with({2, 4, 3}, {2, 4, 4}), refused("value: shape [2, 4, 4]"));
  EXPECT_THAT(with({2, 4, 3}, {2, 3, 5}), refused("value: 3 rows, key has 4"));
  EXPECT_THAT(with({4, 3}, {2, 4, 5}), refused("key: shape [4, 3]"));
  EXPECT_THAT(with({2, 2, 4, 3}, {2, 4, 5}),
              refused("key: shape [2, 2, 4, 3]"));
  KeyValueBlock halves = rows.block();
  halves.value.type = DataType::kFloat16;
  EXPECT_THAT(layout.CheckRows(halves), refused("value: datatype FP16"));
  KeyValueBlock away = rows.block();
  away.key.space = MemorySpace::kCudaDevice;
  EXPECT_THAT(layout.CheckRows(away), refused("key: lies in a device's"));
}

TEST(StorePageLayoutTest, RefusesFormsOutOfRange) {
  const auto create = [](SequenceForm form) {
    return Sequence::Create(form, testing::Unlimited());
  };
  const auto refused = [](const std::string& text) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text));
  };
  EXPECT_THAT(create({.heads = 0}), refused("heads: 0"));
  EXPECT_THAT(create({.heads = 65537}), refused("heads: 65537"));
  EXPECT_THAT(create({.key_width = 0}), refused("key_width: 0"));
  EXPECT_THAT(create({.value_width = -1}), refused("value_width: -1"));
  EXPECT_THAT(create({.layers = 4097}), refused("layers: 4097"));
  EXPECT_THAT(create({.type = DataType::kInt32}), refused("datatype: INT32"));
}

}  // namespace
}  // namespace attention::store
