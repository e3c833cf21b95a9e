#ifndef ATTENTION_SERVER_MODELS_PARAMETER_SET_CONFIG_H_
#define ATTENTION_SERVER_MODELS_PARAMETER_SET_CONFIG_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/problem.h"

namespace attention::server {

/// How a weight lies in its file.
enum class WeightLayout : uint8_t {
  kInputByOutput,  // ours: q W, W of shape (Dq, h)
  kOutputByInput,  // PyTorch's nn.Linear.weight: q W^T, shape (h, Dq)
};

/// Where one parameter comes from.
struct ParameterSource {
  std::string tensor;  // its name in parameters.safetensors
  /// Must be declared where the parameter has two extents or more: a square
  /// matrix the wrong way round passes every check of shapes.
  std::optional<WeightLayout> layout;
};

/// What config.json says, checked as far as it can be without the tensors:
///
///   {
///     "scoring": "additive",
///     "parameters": {
///       "w_q": {"tensor": "encoder.w_q.weight", "layout": "output_by_input"},
///       "w_k": {"layout": "input_by_output"},
///       "w_v": {}
///     },
///     "options": {"softcap": 30, "causal": "top_left", "window_left": 128},
///     "sequences": true
///   }
///
/// scoring: scaled_dot_product, additive, gaussian or bilinear. Required.
/// parameters: those tensors of the scoring function that a set may have
/// (tensor_fields.h). "tensor" is the name in the file, the parameter's own
/// where absent; options of each head (alibi_slopes, sinks) are read where
/// "parameters" names them. "layout" is input_by_output or output_by_input.
/// options: any of option_fields.h that the scoring function has. A request's
/// own win over them.
/// sequences: true or false, false where absent.
struct ParameterSetConfig {
  /// What a request that names the set begins with; no tensors are in it yet,
  /// those of the scoring function neither.
  AttentionProblem defaults;
  /// By the parameter's name; each parameter of the scoring function.
  std::map<std::string, ParameterSource> parameters;
  /// As Model::sequences.
  bool sequences = false;
};

/// INVALID_ARGUMENT, beginning with the key's name ("options.softcap"), for
/// what is not JSON, a key that is unknown (the known ones are listed) or comes
/// twice, a missing key and a value of the wrong type. Whether values are in
/// range is Validate()'s to say.
absl::StatusOr<ParameterSetConfig> ParseParameterSetConfig(
    absl::string_view json);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_MODELS_PARAMETER_SET_CONFIG_H_
