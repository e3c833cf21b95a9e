#include <cstdint>
#include <limits>

#include "absl/strings/str_cat.h"
#include "core/validate_parts.h"

namespace attention {
namespace internal {
namespace {

absl::Status CheckFits(absl::string_view field, const Shape& shape,
                       DataType type) {
  const auto count = ElementCount(shape, ByteSize(type));
  return count.ok() ? absl::OkStatus()
                    : FieldError(field, count.status().message());
}

}  // namespace

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

absl::Status CheckTopK(int64_t top_k, int64_t most, absl::string_view of) {
  if (top_k >= 1 && top_k <= most) return absl::OkStatus();
  return FieldError("top_k", most == 0
                                 ? absl::StrCat(top_k, " (there are no keys)")
                                 : absl::StrCat(top_k, " (expected 1 to ", most,
                                                ", the ", of, ")"));
}

absl::Status ValidateWanted(const WantedOutputs& wanted,
                            ValidatedProblem& valid) {
  valid.wanted = wanted;
  if (wanted.top_k) {
    absl::Status status =
        CheckTopK(*wanted.top_k, valid.key_length, "number of keys");
    if (!status.ok()) return status;
    valid.top_k_shape = valid.weights_shape;
    valid.top_k_shape.back() = *wanted.top_k;
    status = CheckFits("top_k", valid.top_k_shape, DataType::kInt64);
    if (!status.ok()) return status;
  }
  if (!wanted.key_weights) return absl::OkStatus();
  valid.key_weights_shape = valid.weights_shape;
  valid.key_weights_shape.erase(valid.key_weights_shape.end() - 2);
  return CheckFits("key_weights", valid.key_weights_shape, DataType::kFloat32);
}

}  // namespace internal

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
