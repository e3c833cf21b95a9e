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

/// Entries of a packed batch, at most: each of them takes some KiB while it is
/// computed, however short it is.
inline constexpr int64_t kMostPackedEntries = 4096;

/// What is computed together: one problem, or one for each entry of a batch.
/// Its results are one tensor each, in any case.
struct ValidatedBatch {
  /// How results lie.
  enum class Form : uint8_t {
    kOneProblem,  // as the problem says itself
    kPacked,      // tokens first
    kEntries,     // as the query, of entries with keys of their own
  };

  Form form = Form::kOneProblem;
  std::vector<ValidatedProblem> problems;
  /// Where each entry's rows, weights and keys begin in the results.
  struct Begin {
    int64_t row = 0;
    int64_t weight = 0;
    int64_t key = 0;
  };
  std::vector<Begin> begins;

  // What the caller is given. Packed (T, Hq, Dv), the entries' (Hq, Lq, Lk) one
  // after the other in one extent, (Hq, T), (T, Hq, k) and (Hq, S). In the
  // other forms (B, Hq, Lq, Dv), (B, Hq, Lq, Lk), (B, Hq, Lq), (B, Hq, Lq, k)
  // and (B, Hq, Lk), without what the query lacks of it; but where entries have
  // different lengths, weights and key weights as packed.
  DataType output_type = DataType::kFloat32;  // the query's
  Shape output_shape;
  Shape weights_shape;
  Shape lse_shape;
  Shape top_k_shape;        // where they are wanted
  Shape key_weights_shape;  // likewise

  /// The part of `results` that is of one problem.
  AttentionOutputs OutputsOf(size_t index,
                             const AttentionOutputs& results) const;

  /// Bytes of all wanted results together; saturates at 2^63 - 1.
  int64_t ResultBytes() const;
};

/// Validate() for packed batches and for entries with keys of their own, too.
/// INVALID_ARGUMENT names the field as it does, and the entry that it is about;
/// query_starts and key_starts are fields like the others. RESOURCE_EXHAUSTED
/// for more than kMostPackedEntries.
absl::StatusOr<ValidatedBatch> ValidateBatch(const AttentionProblem& problem);

}  // namespace attention

#endif  // ATTENTION_CORE_BATCH_H_
