#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/element.h"
#include "core/validate_parts.h"

namespace attention::internal {
namespace {

// Broadcasts `mask` to (B, Hq, Lq, Lk) within the query's rank.
absl::Status ToScores(absl::string_view field, const TensorView& mask, int rank,
                      const ValidatedProblem& valid,
                      std::optional<TensorView>& result) {
  const absl::StatusOr<TensorView> wide =
      Broadcast(field, mask,
                Narrow({valid.batch, valid.query_heads, valid.query_length,
                        valid.key_length},
                       rank));
  if (!wide.ok()) return wide.status();
  result = AddExtents(*wide, 4);
  return absl::OkStatus();
}

// Calls visit(element address, indices) for every element of a view, once for
// those that strides of 0 repeat, until it gives an error. Returns the first
// one.
template <typename Visit>
absl::Status ForEachElement(const TensorView& repeated, const Visit& visit) {
  const TensorView view = WithoutRepeats(repeated);
  if (ElementCount(view.shape).value_or(0) == 0) return absl::OkStatus();
  Shape index(view.shape.size(), 0);
  const std::byte* element = view.data;
  while (true) {
    if (absl::Status status = visit(element, index); !status.ok()) {
      return status;
    }
    size_t axis = index.size();
    while (axis-- > 0) {
      element += view.strides[axis];
      if (++index[axis] < view.shape[axis]) break;
      element -= view.strides[axis] * view.shape[axis];
      index[axis] = 0;
    }
    if (axis == static_cast<size_t>(-1)) return absl::OkStatus();
  }
}

// Of a tensor whose first extent is the batch's: the caller's index.
std::string IndexInBatch(Shape index, const AttentionProblem& problem) {
  index[0] += problem.first_entry;
  return ShapeToString(index);
}

absl::Status ValidateLengths(const AttentionProblem& problem,
                             ValidatedProblem& valid) {
  const TensorView& lens = *problem.masks.valid_lens;
  if (absl::Status status = CheckIntegers("valid_lens", lens); !status.ok()) {
    return status;
  }
  const Shape per_batch = {valid.batch};
  const Shape per_row = {valid.batch, valid.query_length};
  if (lens.shape != per_batch && lens.shape != per_row) {
    return FieldError("valid_lens",
                      absl::StrCat("shape ", ShapeToString(lens.shape),
                                   " (expected ", ShapeToString(per_batch),
                                   " or ", ShapeToString(per_row), ")"));
  }
  const auto check = [&](const std::byte* element, const Shape& index) {
    const int64_t length = LoadInteger(lens.type, element);
    if (length >= 0 && length <= valid.key_length) return absl::OkStatus();
    return FieldError("valid_lens",
                      absl::StrCat("element ", IndexInBatch(index, problem),
                                   " is ", length, " (expected 0 to ",
                                   valid.key_length, ", the number of keys)"));
  };
  if (absl::Status status = ForEachElement(lens, check); !status.ok()) {
    return status;
  }
  TensorView wide = lens;
  if (lens.rank() == 1) {
    wide.shape.push_back(valid.query_length);
    wide.strides.push_back(0);
  }
  valid.valid_lens = wide;
  return absl::OkStatus();
}

// Of bytes side by side, eight at a time.
bool AllZeroOrOne(const std::byte* first, size_t count) {
  constexpr uint64_t kOthers = 0xFEFEFEFEFEFEFEFE;
  uint64_t others = 0;
  size_t i = 0;
  for (; i + sizeof(uint64_t) <= count; i += sizeof(uint64_t)) {
    uint64_t eight;
    std::memcpy(&eight, first + i, sizeof(eight));
    others |= eight & kOthers;
  }
  for (; i < count; ++i) {
    others |= std::to_integer<uint64_t>(first[i]) & kOthers;
  }
  return others == 0;
}

// The same of a mask, by parts without gaps, as long as there are: masks are
// large, and an index for every element takes longer than the attention does.
bool AllZeroOrOne(const TensorView& mask) {
  const TensorView once = WithoutRepeats(mask);
  if (ElementCount(once.shape).value_or(0) == 0) return true;
  TensorView parts = once;
  size_t length = 1;
  size_t axis = once.shape.size();
  while (axis > 0 && IsRowMajor(once, axis - 1)) {
    --axis;
    length *= static_cast<size_t>(once.shape[axis]);
    parts.shape[axis] = 1;
  }
  const auto check = [&](const std::byte* first, const Shape&) {
    return AllZeroOrOne(first, length) ? absl::OkStatus()
                                       : absl::InvalidArgumentError("");
  };
  return ForEachElement(parts, check).ok();
}

absl::Status ValidateBias(const TensorView& bias, int rank,
                          ValidatedProblem& valid) {
  if (absl::Status status = CheckView("bias", bias); !status.ok()) {
    return status;
  }
  if (!IsFloat32OrQueryType(bias.type, valid)) {
    return ParameterTypeError("bias", bias.type, valid);
  }
  return ToScores("bias", bias, rank, valid, valid.bias);
}

bool IsOffset(int64_t offset) {
  constexpr int64_t kMost = int64_t{1} << 62;
  return offset >= -kMost && offset <= kMost;
}

absl::Status CheckOffset(absl::string_view field,
                         const std::optional<int64_t>& offset, Causal causal) {
  if (!offset) return absl::OkStatus();
  if (causal == Causal::kBottomRight) {
    return FieldError(
        field, absl::StrCat(*offset,
                            " was given with causal bottom_right, which places "
                            "the queries itself (leave it out)"));
  }
  if (!IsOffset(*offset)) {
    return FieldError(field,
                      absl::StrCat(*offset, " (expected -2^62 to 2^62)"));
  }
  return absl::OkStatus();
}

absl::Status ValidateOffsets(const AttentionProblem& problem,
                             ValidatedProblem& valid) {
  constexpr char kField[] = "query_offsets";
  const Masks& masks = problem.masks;
  const TensorView& offsets = *masks.query_offsets;
  if (absl::Status status = CheckIntegers(kField, offsets); !status.ok()) {
    return status;
  }
  if (masks.query_offset) {
    return FieldError(kField, absl::StrCat("was given with query_offset ",
                                           *masks.query_offset,
                                           " (one of the two is expected)"));
  }
  if (masks.causal == Causal::kBottomRight) {
    return FieldError(kField,
                      "was given with causal bottom_right, which places the "
                      "queries itself (leave it out)");
  }
  if (const Shape expected = {valid.batch}; offsets.shape != expected) {
    return FieldError(
        kField, absl::StrCat("shape ", ShapeToString(offsets.shape),
                             " (expected ", ShapeToString(expected), ")"));
  }
  valid.query_offsets = offsets;
  const auto check = [&](const std::byte* element, const Shape& index) {
    const int64_t offset = LoadInteger(offsets.type, element);
    if (IsOffset(offset)) return absl::OkStatus();
    return FieldError(
        kField, absl::StrCat("element ", IndexInBatch(index, problem), " is ",
                             offset, " (expected -2^62 to 2^62)"));
  };
  return ForEachElement(offsets, check);
}

absl::Status CheckWindow(absl::string_view field,
                         const std::optional<int64_t>& reach) {
  if (!reach || *reach >= 0) return absl::OkStatus();
  return FieldError(
      field, absl::StrCat(*reach, " (expected 0 or more; absent = unbounded)"));
}

}  // namespace

absl::StatusOr<TensorView> Broadcast(absl::string_view field,
                                     const TensorView& mask,
                                     const Shape& target) {
  TensorView wide = mask;
  while (wide.shape.size() < target.size()) {
    wide.shape.insert(wide.shape.begin(), 1);
    wide.strides.insert(wide.strides.begin(), 0);
  }
  bool fits = wide.shape.size() == target.size();
  for (size_t i = 0; fits && i < target.size(); ++i) {
    fits = wide.shape[i] == target[i] || wide.shape[i] == 1;
    if (wide.shape[i] == 1) wide.strides[i] = 0;
    wide.shape[i] = target[i];
  }
  if (fits) return wide;
  return FieldError(
      field, absl::StrCat("shape ", ShapeToString(mask.shape),
                          " does not broadcast to ", ShapeToString(target)));
}

absl::Status CheckAttendMask(const TensorView& mask) {
  if (absl::Status status = CheckHostView("attend_mask", mask); !status.ok()) {
    return status;
  }
  if (mask.type != DataType::kBool && mask.type != DataType::kUint8) {
    return FieldError("attend_mask", absl::StrCat("datatype ", Name(mask.type),
                                                  " (expected BOOL or UINT8)"));
  }
  if (AllZeroOrOne(mask)) return absl::OkStatus();
  return ForEachElement(mask, [](const std::byte* element, const Shape& index) {
    const auto value = std::to_integer<unsigned>(*element);
    if (value <= 1) return absl::OkStatus();
    return FieldError(
        "attend_mask",
        absl::StrCat("element ", ShapeToString(index), " is ", value,
                     " (expected 1 = takes part, or 0 = does not)"));
  });
}

absl::Status ValidateMasks(const AttentionProblem& problem, int rank,
                           ValidatedProblem& valid) {
  const Masks& masks = problem.masks;
  absl::Status status;
  if (masks.valid_lens) {
    status.Update(ValidateLengths(problem, valid));
  }
  if (masks.attend_mask) {
    if (!problem.attend_mask_checked) {
      status.Update(CheckAttendMask(*masks.attend_mask));
    }
    if (status.ok()) {
      status = ToScores("attend_mask", *masks.attend_mask, rank, valid,
                        valid.attend_mask);
    }
  }
  if (masks.bias) status.Update(ValidateBias(*masks.bias, rank, valid));
  status.Update(CheckOffset("query_offset", masks.query_offset, masks.causal));
  if (masks.query_offsets) {
    status.Update(ValidateOffsets(problem, valid));
  }
  status.Update(CheckOffset("key_offset", masks.key_offset, masks.causal));
  status.Update(CheckWindow("window_left", masks.window.left));
  status.Update(CheckWindow("window_right", masks.window.right));
  valid.causal = masks.causal;
  valid.query_position = masks.causal == Causal::kBottomRight
                             ? valid.key_length - valid.query_length
                             : masks.query_offset.value_or(0);
  valid.key_position = masks.key_offset.value_or(0);
  valid.window = masks.window;
  return status;
}

}  // namespace attention::internal
