#ifndef ATTENTION_CLIENT_MERGE_H_
#define ATTENTION_CLIENT_MERGE_H_

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "attention_client/client.h"

namespace attention::client {

struct MergeOptions {
  /// Results of packed batches, whose lse is (Hq, T) beside output (T, Hq, Dv).
  bool packed = false;
};

/// The result of all keys from results for shards of them: the same queries,
/// each with other keys and values, in any order, computed anywhere. Each was
/// asked for with return_lse, rows without keys as zeros, and at most one of
/// them with sinks. A merged result can be merged again.
///
/// output, of the shards' datatype, and lse are merged; other tensors are left
/// out. Times are those of the slowest shard; id, backend and kernel are the
/// first one's. INVALID_ARGUMENT where there is no shard, one has no lse, or
/// shapes or datatypes differ.
absl::StatusOr<AttendResult> Merge(absl::Span<const AttendResult> shards,
                                   const MergeOptions& options = {});

}  // namespace attention::client

#endif  // ATTENTION_CLIENT_MERGE_H_
