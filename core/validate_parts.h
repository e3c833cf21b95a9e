#ifndef ATTENTION_CORE_VALIDATE_PARTS_H_
#define ATTENTION_CORE_VALIDATE_PARTS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/validate.h"

/// The parts of Validate(), each in a file of its own. They are called in this
/// order and may rely on what the earlier ones have checked and filled in.
namespace attention::internal {

/// INVALID_ARGUMENT "FIELD: what it had (what was expected)".
absl::Status FieldError(absl::string_view field, absl::string_view problem);

/// Checks that a view is well formed; CheckHostView() also that it lies in host
/// memory.
absl::Status CheckView(absl::string_view field, const TensorView& view);
absl::Status CheckHostView(absl::string_view field, const TensorView& view);
/// That it has integers and lies in host memory.
absl::Status CheckIntegers(absl::string_view field, const TensorView& view);

/// A view with `extents` of them, where it has up to two fewer: those that it
/// lacks become 1. The last to come is the heads', behind the batch's.
template <typename View>
View AddExtents(View view, int extents) {
  while (view.rank() < extents) {
    const int at = view.rank() == extents - 1 ? 1 : 0;
    view.shape.insert(view.shape.begin() + at, 1);
    view.strides.insert(view.strides.begin() + at, 0);
  }
  return view;
}

/// The view without what strides of 0 repeat, however often: values need one
/// look. Elements keep their indices.
inline TensorView WithoutRepeats(TensorView view) {
  for (size_t i = 0; i < view.shape.size(); ++i) {
    if (view.strides[i] == 0 && view.shape[i] > 1) view.shape[i] = 1;
  }
  return view;
}

/// "FIELD: shape SHAPE has EXTENT (expected 1 or more)".
absl::Status ZeroExtent(absl::string_view field, absl::string_view shape,
                        absl::string_view extent);

/// The shape of a key or value as the caller has it.
std::string GivenShape(const AttentionProblem& problem,
                       const TensorView& tensor);
/// That a query, packed or not, has heads and a width, its last extent.
absl::Status CheckQueryExtents(const TensorView& query, int64_t heads);
/// That a query has two to four extents, heads, a width, and numbers.
absl::Status CheckQuery(const TensorView& query);
/// (B, H, L, D) of a view of two to four extents: missing ones become 1.
TensorView Widen(const TensorView& view);
/// What a shape of `rank` extents, 2 to 4, leaves out when it comes from four.
Shape Narrow(const Shape& four, int rank);

/// "FP32" or "FP32 or FP16": what bias and parameters may be.
bool IsFloat32OrQueryType(DataType type, const ValidatedProblem& valid);
absl::Status ParameterTypeError(absl::string_view field, DataType type,
                                const ValidatedProblem& valid);

/// Whether the scales of each head, (B, Hkv, n), lie side by side, and all are
/// finite numbers above 0 or +0. A quick look: where not, ReadScales() tells.
bool AreDenseScales(const TensorView& scales);

/// The scales of a key's or a value's rows, of a type that may have some, and
/// `rows` the tensor as the caller has it: checked, and given as (B, Hkv, n).
/// `values_checked` as in KeyValueBlock.
absl::Status ReadScales(absl::string_view field, const TensorView& rows,
                        const std::optional<TensorView>& scales,
                        bool values_checked, std::optional<TensorView>& result);

/// Keys, values and their scales: fills `kv_heads`, `key_width`, `value_width`,
/// `key_type`, `key_length`, `key_value`. Needs the query.
absl::Status ValidateKeys(const AttentionProblem& problem,
                          ValidatedProblem& valid);

/// Scoring function and softcap: fills `scoring`, `scale`, `hidden_width`,
/// `softcap`. Needs the extents.
absl::Status ValidateScoring(const AttentionProblem& problem,
                             ValidatedProblem& valid);

/// A mask with the extents of `target`, by NumPy's rule: extents align from the
/// last one, and 1 stretches (stride 0).
absl::StatusOr<TensorView> Broadcast(absl::string_view field,
                                     const TensorView& mask,
                                     const Shape& target);
/// That an attend_mask lies in host memory and says 0 or 1 of each key.
absl::Status CheckAttendMask(const TensorView& mask);

/// Lengths, masks, bias, positions, window: fills the fields of these names.
/// `rank` is the query's own.
absl::Status ValidateMasks(const AttentionProblem& problem, int rank,
                           ValidatedProblem& valid);

/// What every head has one of: fills `alibi_slopes`, `sinks`.
absl::Status ValidatePerHead(const AttentionProblem& problem,
                             ValidatedProblem& valid);

/// The shapes of output, weights and lse, for a query of `rank` extents.
absl::Status SetResultShapes(int rank, ValidatedProblem& valid);
/// Results beside output, weights and lse: fills `wanted` and the shapes of
/// those that are asked for. Needs the shapes of output and weights.
absl::Status ValidateWanted(const WantedOutputs& wanted,
                            ValidatedProblem& valid);
/// That top_k is from 1 to `most`, the number of keys, which `of` says more of.
absl::Status CheckTopK(int64_t top_k, int64_t most, absl::string_view of);

}  // namespace attention::internal

#endif  // ATTENTION_CORE_VALIDATE_PARTS_H_
