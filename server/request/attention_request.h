#ifndef ATTENTION_SERVER_REQUEST_ATTENTION_REQUEST_H_
#define ATTENTION_SERVER_REQUEST_ATTENTION_REQUEST_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "core/problem.h"
#include "server/memory/aligned_buffer.h"
#include "server/memory/shared_memory_region.h"
#include "server/request/tensor_fields.h"
#include "server/telemetry/request_facts.h"

namespace attention::server {

/// Bytes of a shared-memory region that a tensor or a result lies in.
struct RegionBytes {
  std::shared_ptr<SharedMemoryRegion> region;  // null: in none
  absl::Span<std::byte> bytes;
};

/// One result that a request wants back, and where.
struct WantedResult {
  ResultField result = ResultField::kOutput;
  RegionBytes place = {};  // without a region: in the reply
};

/// A layer of a sequence whose keys and values a request reads.
struct SequenceLayer {
  std::string name;
  int64_t layer = 0;
  /// Where the request's own keys go; absent: behind the last one.
  std::optional<int64_t> position = {};
  std::string label = {};  // of one that the request makes
};

/// What a request does with its sequences beside reading and appending.
struct SequenceLife {
  bool start = false;  // makes them first, in place of those that are there
  bool end = false;    // deletes them when it has been computed
  /// What the names of all begin with, of batches of any size.
  std::string names = {};
};

/// What one request asks, whichever wire it came over.
struct AttentionRequest {
  /// Views of the wire's memory, of what follows, or of regions.
  AttentionProblem problem;
  /// In the reply's order, each at most once. problem.wanted says the same; of
  /// the two of top_k both are computed where one is here.
  std::vector<WantedResult> results;

  /// How many came with the request, by DataType.
  std::array<uint8_t, kMostDataTypes> tensors_by_type{};

  /// What tensors lie in apart from the message.
  struct TensorInRegion {
    absl::string_view field;
    RegionBytes place;
  };
  std::vector<TensorInRegion> tensors_in_regions;
  std::vector<AlignedBuffer> buffers;
  /// Where keys and values come from, one for each entry of the batch; none: in
  /// the request. With some, those in the request, if any, are appended.
  std::vector<SequenceLayer> sequences;
  SequenceLife sequence_life;
  std::shared_ptr<const void> parameters;  // of a set
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_REQUEST_ATTENTION_REQUEST_H_
