#include "core/store/sequence_form.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace attention::store {
namespace {

absl::Status CheckRange(absl::string_view field, int64_t value, int64_t least,
                        int64_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      field, ": ", value, " (expected: ", least, " to ", most, ")"));
}

}  // namespace

absl::Status CheckForm(const SequenceForm& form) {
  absl::Status status =
      CheckRange("heads", form.heads, 1, SequenceForm::kMostHeads);
  status.Update(
      CheckRange("key_width", form.key_width, 1, SequenceForm::kMostWidth));
  status.Update(
      CheckRange("value_width", form.value_width, 0, SequenceForm::kMostWidth));
  status.Update(
      CheckRange("layers", form.layers, 1, SequenceForm::kMostLayers));
  if (!IsAttentionType(form.type) && !IsScaledType(form.type)) {
    status.Update(absl::InvalidArgumentError(
        absl::StrCat("datatype: ", Name(form.type),
                     " (expected: FP32, FP16, BF16, INT8 or FP8)")));
  }
  return status;
}

}  // namespace attention::store
