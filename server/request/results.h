#ifndef ATTENTION_SERVER_REQUEST_RESULTS_H_
#define ATTENTION_SERVER_REQUEST_RESULTS_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/batch.h"
#include "core/problem.h"
#include "core/shape.h"
#include "server/memory/aligned_buffer.h"
#include "server/request/attention_request.h"

namespace attention::server {

/// One result: what it is, and where it is computed to.
struct Result {
  WantedResult wanted;
  DataType type = DataType::kFloat32;
  Shape shape;
  int64_t bytes = 0;     // of its elements; saturates at 2^63 - 1
  AlignedBuffer buffer;  // unless it goes to a region

  bool in_region() const { return wanted.place.region != nullptr; }
};

/// The results of one request, planned before anything is allocated, computed
/// in place and then sent: first their sizes are known and can be refused, then
/// the memory is there for the engine to write to, then that same memory
/// becomes the message.
class Results {
 public:
  /// Nothing is allocated yet.
  Results(const std::vector<WantedResult>& wanted, const ValidatedBatch& batch);

  /// What the reply sends, in its order.
  absl::Span<Result> sent() { return absl::MakeSpan(results_).first(sent_); }
  absl::Span<const Result> sent() const {
    return absl::MakeConstSpan(results_).first(sent_);
  }

  /// Bytes of all elements that are not in regions; saturates at 2^63 - 1.
  int64_t Bytes() const;

  /// The same of those that the reply sends.
  int64_t SentBytes() const;

  /// OK where what is sent and `other_bytes` of the message around it fit into
  /// `limit` bytes, and each result into its region. RESOURCE_EXHAUSTED or
  /// INVALID_ARGUMENT with the name of the one that does not.
  absl::Status CheckFit(int64_t other_bytes, int64_t limit) const;

  /// Memory for those that are not in regions. RESOURCE_EXHAUSTED where there
  /// is none; CheckFit() was OK.
  absl::Status Allocate();

  /// Where the engine writes, after Allocate().
  AttentionOutputs Outputs();
  /// Where it writes, of a caller that has memory of its own in place of
  /// Allocate(): what `place` says of each result, also of those that nobody
  /// wants.
  AttentionOutputs OutputsAt(
      absl::FunctionRef<MutableTensorView(Result& result)> place);

 private:
  const Result& LargestSent() const;

  std::vector<Result> results_;  // sent_ of them, then those nobody wants
  size_t sent_;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_REQUEST_RESULTS_H_
