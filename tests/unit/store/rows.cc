#include "tests/unit/store/rows.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace attention::store::testing {
namespace {

// The bits of one element. Column 0 of head 0's key is the tag.
uint32_t Bits(uint32_t tag, int64_t position, int64_t head, int64_t column,
              bool is_value) {
  const auto mixed = static_cast<uint32_t>(position * 7919 + head * 104729 +
                                           column * 31 + (is_value ? 1 : 0));
  if (head == 0 && column == 0 && !is_value) return tag;
  return (tag * 2654435761U) ^ (mixed * 40503U);
}

uint32_t Cut(uint32_t bits, int64_t bytes) {
  return bytes == 4 ? bits : bits & ((1U << (8 * bytes)) - 1);
}

uint32_t Load(const std::byte* from, int64_t bytes) {
  uint32_t bits = 0;
  std::memcpy(&bits, from, static_cast<size_t>(bytes));
  return bits;
}

Tensor Make(const SequenceForm& form, int64_t first, int64_t count,
            uint32_t tag, bool is_value) {
  const int64_t width = is_value ? form.value_width : form.key_width;
  Tensor tensor = Tensor::Create(form.type, {form.heads, count, width}).value();
  const int64_t bytes = ByteSize(form.type);
  std::byte* to = tensor.data();
  for (int64_t head = 0; head < form.heads; ++head) {
    for (int64_t row = 0; row < count; ++row) {
      for (int64_t column = 0; column < width; ++column, to += bytes) {
        const uint32_t bits = Bits(tag, first + row, head, column, is_value);
        std::memcpy(to, &bits, static_cast<size_t>(bytes));
      }
    }
  }
  return tensor;
}

// What a row's scale is: a small whole number, which is finite and above 0.
float Scale(uint32_t tag, int64_t position, int64_t head, bool is_value) {
  constexpr int64_t kColumn = 1 << 20;  // no row has one
  const uint32_t bits = Bits(tag, position, head, kColumn, is_value);
  return 1.0F + static_cast<float>(bits & 0xFFFFU);
}

Tensor MakeScales(const SequenceForm& form, int64_t first, int64_t count,
                  uint32_t tag, bool is_value) {
  std::vector<float> scales;
  for (int64_t head = 0; head < form.heads; ++head) {
    for (int64_t row = 0; row < count; ++row) {
      scales.push_back(Scale(tag, first + row, head, is_value));
    }
  }
  return Tensor::FromFloats({form.heads, count}, scales);
}

// The same of scales (1, H, n).
std::string FirstWrongScale(const TensorView& view, int64_t first,
                            const std::vector<uint32_t>& tags, bool is_value) {
  for (int64_t head = 0; head < view.shape[1]; ++head) {
    for (int64_t row = 0; row < view.shape[2]; ++row) {
      const int64_t position = first + row;
      float scale = 0;
      std::memcpy(&scale,
                  view.data + head * view.strides[1] + row * view.strides[2],
                  sizeof(scale));
      if (scale != Scale(tags[static_cast<size_t>(position)], position, head,
                         is_value)) {
        return absl::StrCat("scale of ", is_value ? "value" : "key",
                            " of head ", head, " at position ", position);
      }
    }
  }
  return "";
}

// The first place of a view (1, H, n, D) that has other bits than its tags say.
std::string FirstWrong(const TensorView& view, int64_t first,
                       const std::vector<uint32_t>& tags, bool is_value) {
  const int64_t bytes = ByteSize(view.type);
  for (int64_t head = 0; head < view.shape[1]; ++head) {
    for (int64_t row = 0; row < view.shape[2]; ++row) {
      const int64_t position = first + row;
      for (int64_t column = 0; column < view.shape[3]; ++column) {
        const uint32_t expected = Bits(tags[static_cast<size_t>(position)],
                                       position, head, column, is_value);
        if (Load(view.At(0, head, row, column), bytes) !=
            Cut(expected, bytes)) {
          return absl::StrCat(is_value ? "value" : "key", " of head ", head,
                              " at position ", position, ", column ", column);
        }
      }
    }
  }
  return "";
}

}  // namespace

Rows::Rows(const SequenceForm& form, int64_t first, int64_t count, uint32_t tag)
    : key_(Make(form, first, count, tag, /*is_value=*/false)),
      value_(Make(form, first, count, tag, /*is_value=*/true)) {
  if (!IsScaledType(form.type)) return;
  key_scale_ = MakeScales(form, first, count, tag, /*is_value=*/false);
  value_scale_ = MakeScales(form, first, count, tag, /*is_value=*/true);
}

KeyValueBlock Rows::block() const {
  KeyValueBlock block = {key_.view(), value_.view()};
  if (key_scale_) block.key_scale = key_scale_->view();
  if (value_scale_) block.value_scale = value_scale_->view();
  return block;
}

std::vector<uint32_t> TagsOf(const Snapshot& snapshot) {
  std::vector<uint32_t> tags;
  for (const KeyValueBlock& block : snapshot.Blocks()) {
    const auto first = static_cast<int64_t>(tags.size());
    for (int64_t row = 0; row < block.key.shape[2]; ++row) {
      tags.push_back(
          Load(block.key.At(0, 0, row, 0), ByteSize(block.key.type)));
    }
    EXPECT_EQ(FirstWrong(block.key, first, tags, false), "");
    EXPECT_EQ(FirstWrong(block.value, first, tags, true), "");
    EXPECT_EQ(block.key_scale.has_value(), IsScaledType(block.key.type));
    EXPECT_EQ(block.value_scale.has_value(), IsScaledType(block.key.type));
    if (!block.key_scale || !block.value_scale) continue;
    EXPECT_EQ(FirstWrongScale(*block.key_scale, first, tags, false), "");
    EXPECT_EQ(FirstWrongScale(*block.value_scale, first, tags, true), "");
  }
  EXPECT_EQ(static_cast<int64_t>(tags.size()), snapshot.length());
  return tags;
}

std::vector<uint32_t> TagsOf(const Sequence& sequence, int64_t layer) {
  return TagsOf(sequence.TakeSnapshot(layer).value());
}

std::vector<uint32_t> Tags(const std::vector<Run>& runs) {
  std::vector<uint32_t> tags;
  for (const Run& run : runs) {
    tags.insert(tags.end(), static_cast<size_t>(run.count), run.tag);
  }
  return tags;
}

SequenceForm SmallForm(int64_t layers) {
  return {.heads = 2, .key_width = 3, .value_width = 5, .layers = layers};
}

std::shared_ptr<PageBudget> Unlimited() {
  return std::make_shared<PageBudget>(PageBudget::kUnlimited);
}

std::shared_ptr<Sequence> MakeSequence(
    const SequenceForm& form, const std::shared_ptr<PageBudget>& budget) {
  return Sequence::Create(form, budget).value();
}

absl::StatusOr<Appended> AppendRows(Sequence& sequence, int64_t count,
                                    uint32_t tag, int64_t layer) {
  const int64_t length = sequence.Lengths()[static_cast<size_t>(layer)];
  const Rows rows(sequence.form(), length, count, tag);
  return sequence.Append(layer, std::nullopt, rows.block());
}

}  // namespace attention::store::testing
