#include "absl/strings/str_cat.h"
#include "core/validate_parts.h"

namespace attention::internal {
namespace {

absl::Status CheckFits(absl::string_view field, const Shape& shape,
                       DataType type) {
  const auto count = ElementCount(shape, ByteSize(type));
  return count.ok() ? absl::OkStatus()
                    : FieldError(field, count.status().message());
}

}  // namespace

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

}  // namespace attention::internal
