#ifndef ATTENTION_CORE_STEPS_H_
#define ATTENTION_CORE_STEPS_H_

#include <optional>

#include "absl/status/statusor.h"
#include "core/problem.h"
#include "core/tensor.h"
#include "core/tensor_view.h"

/// The two steps that attention is taught with, as functions of their own. The
/// engine does not use them: it never holds a score matrix.
namespace attention {

/// The softmax over the last extent of `scores` (B, n, m), FP32, with the
/// positions at and beyond a row's length left out. `valid_lens` is INT32 or
/// INT64 of shape (B) or (B, n), each within [0, m]; absent means no mask. A
/// row of length 0 gives zeros, or 1 / m everywhere with kUniform, which is
/// what a fill with -1e6 gives. Returns FP32 of the shape of `scores`.
/// INVALID_ARGUMENT names "scores" or "valid_lens".
absl::StatusOr<Tensor> MaskedSoftmax(
    const TensorView& scores, const std::optional<TensorView>& valid_lens,
    EmptyRows empty_rows = EmptyRows::kZero);

/// Batched matrix multiplication: (B, n, m) times (B, m, p) gives (B, n, p).
/// FP32, FP16 or BF16, both alike, which is also the result's type; sums in
/// FP64. INVALID_ARGUMENT names "a" or "b".
absl::StatusOr<Tensor> BatchMatMul(const TensorView& a, const TensorView& b);

}  // namespace attention

#endif  // ATTENTION_CORE_STEPS_H_
