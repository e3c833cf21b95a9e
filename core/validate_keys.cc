#include <string>

#include "absl/strings/str_cat.h"
#include "core/validate_parts.h"

namespace attention::internal {
namespace {

// The rules that a key and a value share: rank, batch.
absl::Status CheckBesideQuery(absl::string_view field, const TensorView& tensor,
                              const TensorView& query) {
  if (absl::Status status = CheckView(field, tensor); !status.ok()) {
    return status;
  }
  if (tensor.rank() != query.rank()) {
    return FieldError(
        field,
        absl::StrCat("shape ", ShapeToString(tensor.shape), " has ",
                     tensor.rank(), " dimensions, query has ", query.rank(),
                     " (query, key and value share one number)"));
  }
  if (tensor.rank() > 2 && tensor.shape[0] != query.shape[0]) {
    return FieldError(field, absl::StrCat("shape ", ShapeToString(tensor.shape),
                                          " has batch ", tensor.shape[0],
                                          ", query has ", query.shape[0]));
  }
  return absl::OkStatus();
}

// One extent of a key or value against what the other tensors have.
absl::Status CheckExtent(const AttentionProblem& problem,
                         absl::string_view field, const TensorView& tensor,
                         absl::string_view extent, int64_t had,
                         absl::string_view other, int64_t expected) {
  if (had == expected) return absl::OkStatus();
  return FieldError(
      field, absl::StrCat("shape ", GivenShape(problem, tensor), " has ",
                          extent, " ", had, ", ", other, " has ", expected));
}

// Of all keys and values there is one type, which the first key sets.
absl::Status CheckTypes(absl::string_view key_name, const TensorView& key,
                        absl::string_view value_name, const TensorView& value,
                        const TensorView& first_key) {
  if (!IsAttentionType(key.type) && !IsScaledType(key.type)) {
    return FieldError(
        key_name, absl::StrCat("datatype ", Name(key.type),
                               " (expected FP32, FP16, BF16, INT8 or FP8)"));
  }
  if (key.type != first_key.type) {
    return FieldError(key_name,
                      absl::StrCat("datatype ", Name(key.type), ", key[0] has ",
                                   Name(first_key.type)));
  }
  if (value.type != key.type) {
    return FieldError(
        value_name,
        absl::StrCat("datatype ", Name(value.type), ", ", key_name, " has ",
                     Name(key.type), " (key and value share one)"));
  }
  return absl::OkStatus();
}

absl::Status CheckHeads(const AttentionProblem& problem,
                        absl::string_view field, const TensorView& key,
                        int64_t heads, const ValidatedProblem& valid) {
  if (heads == 0) return ZeroExtent(field, GivenShape(problem, key), "0 heads");
  if (valid.query_heads % heads != 0) {
    return FieldError(
        field,
        absl::StrCat("shape ", GivenShape(problem, key), " has ", heads,
                     " heads, query has ", valid.query_heads,
                     " (the query's heads are a multiple of the key's)"));
  }
  return absl::OkStatus();
}

// A field of a block: "key", or "key[1]" where there are several. Text is put
// together for these alone: small problems feel it.
class BlockName {
 public:
  BlockName(absl::string_view field, size_t index, bool several)
      : field_(field) {
    if (several) numbered_ = absl::StrCat(field, "[", index, "]");
  }
  // NOLINTNEXTLINE(google-explicit-constructor): it is a name
  operator absl::string_view() const {
    return numbered_.empty() ? field_ : numbered_;
  }

 private:
  absl::string_view field_;
  std::string numbered_;
};

// Types, ranks and batch: what must hold before a block can be widened.
absl::Status CheckForm(const AttentionProblem& problem, size_t index) {
  const KeyValueBlock& block = problem.key_value[index];
  const bool several = problem.key_value.size() > 1;
  const BlockName key_name("key", index, several);
  const BlockName value_name("value", index, several);
  absl::Status status = CheckTypes(key_name, block.key, value_name, block.value,
                                   problem.key_value.front().key);
  if (status.ok()) {
    status = CheckBesideQuery(key_name, block.key, problem.query);
  }
  if (!status.ok()) return status;
  return CheckBesideQuery(value_name, block.value, problem.query);
}

// The rules for the extents of a block. `wide` is the block with four of them;
// the first block sets those that the others must have.
absl::Status CheckExtents(const AttentionProblem& problem, size_t index,
                          const ValidatedProblem::Block& wide,
                          ValidatedProblem& valid) {
  const TensorView& key = problem.key_value[index].key;
  const TensorView& value = problem.key_value[index].value;
  const Shape& key_shape = wide.key.shape;
  const Shape& value_shape = wide.value.shape;
  const bool several = problem.key_value.size() > 1;
  const BlockName key_name("key", index, several);
  const BlockName value_name("value", index, several);
  absl::Status status;
  if (index == 0) {
    status = CheckHeads(problem, key_name, key, key_shape[1], valid);
    if (!status.ok()) return status;
    valid.kv_heads = key_shape[1];
    valid.key_width = key_shape[3];
    valid.value_width = value_shape[3];
    if (valid.key_width == 0) {
      return ZeroExtent(key_name, GivenShape(problem, key), "width 0");
    }
  }
  status.Update(CheckExtent(problem, key_name, key, "heads", key_shape[1],
                            "key[0]", valid.kv_heads));
  status.Update(CheckExtent(problem, key_name, key, "width", key_shape[3],
                            "key[0]", valid.key_width));
  status.Update(CheckExtent(problem, value_name, value, "heads", value_shape[1],
                            key_name, key_shape[1]));
  status.Update(CheckExtent(problem, value_name, value, "length",
                            value_shape[2], key_name, key_shape[2]));
  status.Update(CheckExtent(problem, value_name, value, "width", value_shape[3],
                            "value[0]", valid.value_width));
  return status;
}

// A block's scales, where it has some.
absl::Status ReadBlockScales(const AttentionProblem& problem, size_t index,
                             ValidatedProblem::Block& block) {
  const KeyValueBlock& given = problem.key_value[index];
  if (!IsScaledType(given.key.type) && !given.key_scale && !given.value_scale) {
    return absl::OkStatus();
  }
  const bool several = problem.key_value.size() > 1;
  absl::Status status =
      ReadScales(BlockName("key_scale", index, several), given.key,
                 given.key_scale, given.scales_checked, block.key_scale);
  if (!status.ok()) return status;
  return ReadScales(BlockName("value_scale", index, several), given.value,
                    given.value_scale, given.scales_checked, block.value_scale);
}

bool AreAlike(const TensorView& a, const TensorView& b) {
  return a.type == b.type && a.space == b.space && a.shape == b.shape &&
         a.strides == b.strides;
}

// Whether a block has scales as the other's are, and right ones.
bool HasScalesLike(const ValidatedProblem::Block& other,
                   const KeyValueBlock& given) {
  if (!other.key_scale) return !given.key_scale && !given.value_scale;
  const auto alike = [&given](const std::optional<TensorView>& some,
                              const std::optional<TensorView>& those) {
    return some && AreAlike(*some, *those) &&
           (given.scales_checked || AreDenseScales(*some));
  };
  return alike(given.key_scale, other.key_scale) &&
         alike(given.value_scale, other.value_scale);
}

// Pages are many, and most are as the one before, which has been checked: they
// lie elsewhere. False where this is another one, or its scales are wrong.
bool AddPage(const AttentionProblem& problem, const KeyValueBlock& given,
             ValidatedProblem& valid) {
  if (problem.query.rank() != 4 || valid.key_value.empty()) return false;
  const ValidatedProblem::Block& last = valid.key_value.back();
  if (!AreAlike(given.key, last.key) || !AreAlike(given.value, last.value) ||
      !HasScalesLike(last, given)) {
    return false;
  }
  ValidatedProblem::Block& block = valid.key_value.emplace_back(last);
  block.key.data = given.key.data;
  block.key.device = given.key.device;
  block.value.data = given.value.data;
  block.value.device = given.value.device;
  if (block.key_scale) {
    block.key_scale->data = given.key_scale->data;
    block.value_scale->data = given.value_scale->data;
  }
  return true;
}

absl::Status AddForm(const AttentionProblem& problem, size_t index,
                     ValidatedProblem& valid) {
  const KeyValueBlock& given = problem.key_value[index];
  absl::Status status = CheckForm(problem, index);
  if (!status.ok()) return status;
  ValidatedProblem::Block& block = valid.key_value.emplace_back();
  block.key = Widen(given.key);
  block.value = Widen(given.value);
  block.key_count = block.key.shape[2];
  status = CheckExtents(problem, index, block, valid);
  return status.ok() ? ReadBlockScales(problem, index, block) : status;
}

absl::Status AddBlock(const AttentionProblem& problem, size_t index,
                      ValidatedProblem& valid) {
  const KeyValueBlock& given = problem.key_value[index];
  if (!AddPage(problem, given, valid)) {
    absl::Status status = AddForm(problem, index, valid);
    if (!status.ok()) return status;
  }
  ValidatedProblem::Block& block = valid.key_value.back();
  block.first_key = valid.key_length;
  block.page = given.page;
  if (__builtin_add_overflow(valid.key_length, block.key_count,
                             &valid.key_length)) {
    return FieldError(BlockName("key", index, problem.key_value.size() > 1),
                      "the blocks together pass 2^63 - 1 keys");
  }
  if (block.key_count == 0) valid.key_value.pop_back();
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateKeys(const AttentionProblem& problem,
                          ValidatedProblem& valid) {
  valid.kv_heads = valid.query_heads;
  valid.key_width = valid.query_width;
  valid.key_value.reserve(problem.key_value.size());
  valid.key_type = problem.key_value.empty()
                       ? problem.query.type
                       : problem.key_value.front().key.type;
  for (size_t i = 0; i < problem.key_value.size(); ++i) {
    absl::Status status = AddBlock(problem, i, valid);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace attention::internal
