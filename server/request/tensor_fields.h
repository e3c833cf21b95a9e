#ifndef ATTENTION_SERVER_REQUEST_TENSOR_FIELDS_H_
#define ATTENTION_SERVER_REQUEST_TENSOR_FIELDS_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/problem.h"
#include "server/request/scoring_names.h"

/// The one table of a request's tensors, and of the results. attention.v1 and
/// the Open Inference Protocol, its model metadata, parameter sets, error texts
/// and the documentation read it; a test holds attention.proto to it.
namespace attention::server {

/// Who needs a tensor.
enum class Need : uint8_t {
  kEveryRequest,  // query, key, value
  kScoring,       // the scoring function's parameter, unless a set brings it
  kNobody,        // an option
};

struct TensorField {
  absl::string_view name;
  absl::string_view types;    // for people: "INT32 or INT64"
  absl::string_view shape;    // with four dimensions: "(B, Hq, Lq, Dq)"
  absl::string_view meaning;  // for people, in a few words
  Need need;
  /// The scoring functions that have it.
  ScoringSet scorings;
  /// Its view's place in a problem with one block of keys and values, whose
  /// scoring function has it. An optional one is there from then on.
  TensorView& (*place)(AttentionProblem& problem);
  /// Dimensions in a model's metadata; of those that it lists.
  int metadata_rank = 0;
  /// Its values are looked at before computing: they decide what is read, so
  /// nobody else may be able to change them.
  bool read_first = false;
  /// A device reads it where it lies on the device. The others are small, or
  /// looked at, and brought to the host.
  bool may_lie_on_device = false;
  /// A parameter set may have it.
  bool in_parameter_sets = false;
};

absl::Span<const TensorField> TensorFields();
inline constexpr size_t kMostTensorFields = 32;

/// Where it stands among them.
inline size_t IndexOf(const TensorField& tensor) {
  return static_cast<size_t>(&tensor - TensorFields().data());
}

/// Null where there is none of that name.
const TensorField* FindTensor(absl::string_view name);

/// Whether a request that begins as `problem` may carry the tensor: its scoring
/// function has it and, of parameters, no set has brought it. Nothing changes.
bool Accepts(const TensorField& tensor, AttentionProblem& problem);

/// The names of those, with ", " between them.
std::string AcceptedTensors(AttentionProblem& problem);

/// What a request can ask for. kOutput is always computed.
enum class ResultField : uint8_t {
  kOutput,
  kWeights,
  kLse,
  kTopKIndices,
  kTopKWeights,
  kKeyWeights,
  kScores,
};
inline constexpr ResultField kResultFields[] = {
    ResultField::kOutput,      ResultField::kWeights,
    ResultField::kLse,         ResultField::kTopKIndices,
    ResultField::kTopKWeights, ResultField::kKeyWeights,
    ResultField::kScores};
inline constexpr absl::string_view kResultNames[] = {
    "output",        "weights",     "lse",   "top_k_indices",
    "top_k_weights", "key_weights", "scores"};
constexpr absl::string_view Name(ResultField result) {
  return kResultNames[static_cast<int>(result)];
}

}  // namespace attention::server

#endif  // ATTENTION_SERVER_REQUEST_TENSOR_FIELDS_H_
