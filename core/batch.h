#ifndef ATTENTION_CORE_BATCH_H_
#define ATTENTION_CORE_BATCH_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "core/problem.h"
#include "core/shape.h"
#include "core/validate.h"

namespace attention {

/// What is computed together: one problem, or of a packed batch one for each
/// entry. Its results are one tensor each, in any case.
struct ValidatedBatch {
  std::vector<ValidatedProblem> problems;

  // What the caller is given: of a problem as it says itself; packed (T, Hq,
  // Dv), the entries' (Hq, Lq, Lk) one after the other in one extent, and (Hq,
  // T).
  DataType output_type = DataType::kFloat32;  // the query's
  Shape output_shape;
  Shape weights_shape;
  Shape lse_shape;

  /// The part of `results` that is of one problem.
  AttentionOutputs OutputsOf(size_t index,
                             const AttentionOutputs& results) const;

  /// Bytes of all wanted results together; saturates at 2^63 - 1.
  int64_t ResultBytes() const;
};

/// Validate() for packed batches, too. INVALID_ARGUMENT names the field as it
/// does, and the entry that it is about; query_starts and key_starts are fields
/// like the others.
absl::StatusOr<ValidatedBatch> ValidateBatch(const AttentionProblem& problem);

}  // namespace attention

#endif  // ATTENTION_CORE_BATCH_H_
