#include "core/validate.h"

#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "core/validate_parts.h"

namespace attention {
namespace internal {

absl::Status FieldError(absl::string_view field, absl::string_view problem) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", problem));
}

absl::Status CheckView(absl::string_view field, const TensorView& view) {
  if (view.strides.size() != view.shape.size()) {
    return FieldError(field, "as many strides as extents are expected");
  }
  if (const auto count = ElementCount(view.shape, ByteSize(view.type));
      !count.ok()) {
    return FieldError(field, count.status().message());
  }
  return absl::OkStatus();
}

absl::Status CheckHostView(absl::string_view field, const TensorView& view) {
  if (absl::Status status = CheckView(field, view); !status.ok()) return status;
  if (view.space != MemorySpace::kHost) {
    return FieldError(field, "lies in device memory (host memory is expected)");
  }
  return absl::OkStatus();
}

std::string GivenShape(const AttentionProblem& problem,
                       const TensorView& tensor) {
  const Shape& shape = tensor.shape;
  if (!problem.tokens_first) return ShapeToString(shape);
  return ShapeToString({shape[2], shape[1], shape[3]});
}

namespace {

absl::Status ZeroExtent(absl::string_view field, absl::string_view shape,
                        absl::string_view extent) {
  return FieldError(field, absl::StrCat("shape ", shape, " has ", extent,
                                        " (expected 1 or more)"));
}

}  // namespace

absl::Status CheckQueryExtents(const TensorView& query, int64_t heads) {
  if (heads > 0 && query.shape.back() > 0) return absl::OkStatus();
  return ZeroExtent("query", ShapeToString(query.shape),
                    heads == 0 ? "0 heads" : "width 0");
}

absl::Status CheckQuery(const TensorView& query) {
  if (absl::Status status = CheckView("query", query); !status.ok()) {
    return status;
  }
  if (query.rank() < 2 || query.rank() > 4) {
    return FieldError(
        "query",
        absl::StrCat("shape ", ShapeToString(query.shape), " has ",
                     query.rank(), " dimensions (expected 2, 3 or 4)"));
  }
  if (!IsAttentionType(query.type)) {
    return FieldError("query", absl::StrCat("datatype ", Name(query.type),
                                            " (expected FP32, FP16 or BF16)"));
  }
  return CheckQueryExtents(query, query.rank() == 4 ? query.shape[1] : 1);
}

// One without elements gets an address, which is never read from: kernels may
// count on from it, and nothing may be added to a null pointer.
TensorView Widen(const TensorView& view) {
  static constexpr std::byte kNoElements = {};
  TensorView wide = AddExtents(view, 4);
  if (wide.data == nullptr && absl::c_linear_search(wide.shape, 0)) {
    wide.data = &kNoElements;
  }
  return wide;
}

Shape Narrow(const Shape& four, int rank) {
  if (rank == 4) return four;
  Shape narrow = four;
  narrow.erase(narrow.begin() + 1);
  if (rank == 2) narrow.erase(narrow.begin());
  return narrow;
}

bool IsFloat32OrQueryType(DataType type, const ValidatedProblem& valid) {
  return type == DataType::kFloat32 || type == valid.query.type;
}

absl::Status ParameterTypeError(absl::string_view field, DataType type,
                                const ValidatedProblem& valid) {
  const std::string expected =
      valid.query.type == DataType::kFloat32
          ? "FP32"
          : absl::StrCat("FP32 or, as query, ", Name(valid.query.type));
  return FieldError(field, absl::StrCat("datatype ", Name(type), " (expected ",
                                        expected, ")"));
}

}  // namespace internal

namespace {

using internal::FieldError;
using internal::GivenShape;
using internal::Narrow;
using internal::Widen;
using internal::ZeroExtent;

absl::Status ValidateQuery(const TensorView& query, ValidatedProblem& valid) {
  if (absl::Status status = internal::CheckQuery(query); !status.ok()) {
    return status;
  }
  valid.query = Widen(query);
  valid.batch = valid.query.shape[0];
  valid.query_heads = valid.query.shape[1];
  valid.query_length = valid.query.shape[2];
  valid.query_width = valid.query.shape[3];
  return absl::OkStatus();
}

// The rules that a key and a value share: rank, batch.
absl::Status CheckBesideQuery(absl::string_view field, const TensorView& tensor,
                              const TensorView& query) {
  if (absl::Status status = internal::CheckView(field, tensor); !status.ok()) {
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

// The rules for a block's keys and values. Those of the first block set the
// extents that the others must share.
absl::Status CheckBlock(const AttentionProblem& problem, size_t index,
                        ValidatedProblem& valid) {
  const auto& [key, value, key_scale, value_scale, scales_checked, page] =
      problem.key_value[index];
  const bool several = problem.key_value.size() > 1;
  const BlockName key_name("key", index, several);
  const BlockName value_name("value", index, several);
  absl::Status status = CheckTypes(key_name, key, value_name, value,
                                   problem.key_value.front().key);
  if (status.ok()) status = CheckBesideQuery(key_name, key, problem.query);
  if (status.ok()) status = CheckBesideQuery(value_name, value, problem.query);
  if (!status.ok()) return status;

  const Shape key_shape = Widen(key).shape;
  const Shape value_shape = Widen(value).shape;
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
  absl::Status status = internal::ReadScales(
      BlockName("key_scale", index, several), given.key, given.key_scale,
      given.scales_checked, block.key_scale);
  if (!status.ok()) return status;
  return internal::ReadScales(BlockName("value_scale", index, several),
                              given.value, given.value_scale,
                              given.scales_checked, block.value_scale);
}

bool AreAlike(const TensorView& a, const TensorView& b) {
  return a.type == b.type && a.shape == b.shape &&
         a.strides.size() == b.strides.size();
}

// Checks one block. Pages are many, and most are like the first.
absl::Status AddBlock(const AttentionProblem& problem, size_t index,
                      ValidatedProblem& valid) {
  const KeyValueBlock& given = problem.key_value[index];
  const KeyValueBlock& first = problem.key_value.front();
  if (index == 0 || !AreAlike(given.key, first.key) ||
      !AreAlike(given.value, first.value)) {
    absl::Status status = CheckBlock(problem, index, valid);
    if (!status.ok()) return status;
  }
  ValidatedProblem::Block block = {.key = Widen(given.key),
                                   .value = Widen(given.value),
                                   .first_key = valid.key_length,
                                   .page = given.page};
  block.key_count = block.key.shape[2];
  if (absl::Status status = ReadBlockScales(problem, index, block);
      !status.ok()) {
    return status;
  }
  if (__builtin_add_overflow(valid.key_length, block.key_count,
                             &valid.key_length)) {
    return FieldError(BlockName("key", index, problem.key_value.size() > 1),
                      "the blocks together pass 2^63 - 1 keys");
  }
  if (block.key_count > 0) valid.key_value.push_back(std::move(block));
  return absl::OkStatus();
}

absl::Status ValidateDropout(const Dropout& dropout, ValidatedProblem& valid) {
  if (!(dropout.p >= 0 && dropout.p < 1)) {
    return FieldError("dropout_p",
                      absl::StrCat(dropout.p, " (expected 0 <= p < 1)"));
  }
  valid.dropout = dropout;
  if (!dropout.training) valid.dropout.p = 0;
  return absl::OkStatus();
}

absl::Status SetResultShapes(int rank, ValidatedProblem& valid) {
  const Shape output = {valid.batch, valid.query_heads, valid.query_length,
                        valid.value_width};
  const Shape weights = {valid.batch, valid.query_heads, valid.query_length,
                         valid.key_length};
  valid.output_shape = Narrow(output, rank);
  valid.weights_shape = Narrow(weights, rank);
  valid.lse_shape = valid.output_shape;
  valid.lse_shape.pop_back();
  if (const auto count = ElementCount(output, ByteSize(valid.query.type));
      !count.ok()) {
    return FieldError("value",
                      absl::StrCat("the output's ", count.status().message()));
  }
  if (const auto count = ElementCount(weights, sizeof(float)); !count.ok()) {
    return FieldError("key",
                      absl::StrCat("the weights' ", count.status().message()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ValidatedProblem> Validate(const AttentionProblem& problem) {
  absl::StatusOr<ValidatedProblem> result(absl::in_place,
                                          ValidatedProblem::OnlyValidate());
  ValidatedProblem& valid = *result;
  if (problem.query_starts || problem.key_starts) {
    return FieldError(problem.query_starts ? "query_starts" : "key_starts",
                      "was given where one problem is expected");
  }
  if (!problem.key_value_of_entries.empty()) {
    return FieldError("key",
                      "entries have their own, where one problem is "
                      "expected");
  }
  absl::Status status = ValidateQuery(problem.query, valid);
  if (!status.ok()) return status;
  valid.kv_heads = valid.query_heads;
  valid.key_width = valid.query_width;
  valid.key_value.reserve(problem.key_value.size());
  valid.key_type = problem.key_value.empty()
                       ? problem.query.type
                       : problem.key_value.front().key.type;
  for (size_t i = 0; i < problem.key_value.size(); ++i) {
    status = AddBlock(problem, i, valid);
    if (!status.ok()) return status;
  }
  const int rank = problem.query.rank();
  status = internal::ValidateScoring(problem, valid);
  if (status.ok()) status = internal::ValidateMasks(problem, rank, valid);
  if (status.ok()) status = internal::ValidatePerHead(problem, valid);
  if (status.ok()) status = ValidateDropout(problem.dropout, valid);
  if (status.ok()) status = SetResultShapes(rank, valid);
  if (!status.ok()) return status;
  valid.empty_rows = problem.empty_rows;
  status = internal::ValidateWanted(problem.wanted, valid);
  if (!status.ok()) return status;
  return result;
}

int64_t ValidatedProblem::ResultBytes() const {
  // Validate() has seen that each of these products fits.
  const auto bytes = [](const Shape& shape, DataType type) {
    return ElementCount(shape, ByteSize(type)).value_or(0) * ByteSize(type);
  };
  int64_t total = bytes(output_shape, query.type);
  for (const int64_t more :
       {wanted.weights ? bytes(weights_shape, DataType::kFloat32) : 0,
        wanted.lse ? bytes(lse_shape, DataType::kFloat32) : 0,
        wanted.top_k ? bytes(top_k_shape, DataType::kInt64) : 0,
        wanted.top_k ? bytes(top_k_shape, DataType::kFloat32) : 0,
        wanted.key_weights ? bytes(key_weights_shape, DataType::kFloat32) : 0,
        wanted.scores ? bytes(weights_shape, DataType::kFloat32) : 0}) {
    if (__builtin_add_overflow(total, more, &total)) {
      return std::numeric_limits<int64_t>::max();
    }
  }
  return total;
}

}  // namespace attention
