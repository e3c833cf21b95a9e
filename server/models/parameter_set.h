#ifndef ATTENTION_SERVER_MODELS_PARAMETER_SET_H_
#define ATTENTION_SERVER_MODELS_PARAMETER_SET_H_

#include <cstdint>
#include <limits>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "core/problem.h"
#include "core/tensor.h"

namespace attention::server {

/// A scoring function with its parameters and options, under a name. Never
/// changes once it is loaded; whoever computes with it holds it.
struct ParameterSet {
  std::string name;
  /// The parameters ("w_q", "m"), FP32, laid out as attention.proto has them:
  /// inputs by outputs.
  std::map<std::string, Tensor> tensors;
  /// What a request that names the set begins with: the scoring function, as
  /// views into `tensors`, and the options. query and key_value are empty.
  AttentionProblem defaults;
  /// As Model::sequences.
  bool sequences = false;

  ParameterSet() = default;
  // A copy's views would be of the original's memory.
  ParameterSet(const ParameterSet&) = delete;
  ParameterSet& operator=(const ParameterSet&) = delete;
  ParameterSet(ParameterSet&&) = default;
  ParameterSet& operator=(ParameterSet&&) = default;
  ~ParameterSet() = default;
};

/// Reads `folder`/config.json (parameter_set_config.h has its form) and, where
/// the scoring function has parameters, `folder`/parameters.safetensors.
/// Parameters may be FP32, FP16 or BF16; those of 16 bits are widened, which is
/// exact, so that the set goes with queries of every datatype.
///
/// Everything is checked that does not depend on a request: keys, types,
/// shapes that fit each other, finite parameters, options in range. The error's
/// message begins with the file at fault, without its folder: NOT_FOUND,
/// PERMISSION_DENIED and so on where it cannot be read, RESOURCE_EXHAUSTED
/// where the parameters take more than `most_bytes`, which is seen before they
/// are read, else INVALID_ARGUMENT.
absl::StatusOr<ParameterSet> LoadParameterSet(
    const std::string& name, const std::string& folder,
    int64_t most_bytes = std::numeric_limits<int64_t>::max());

}  // namespace attention::server

#endif  // ATTENTION_SERVER_MODELS_PARAMETER_SET_H_
