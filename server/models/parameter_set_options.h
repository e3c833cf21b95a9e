#ifndef ATTENTION_SERVER_MODELS_PARAMETER_SET_OPTIONS_H_
#define ATTENTION_SERVER_MODELS_PARAMETER_SET_OPTIONS_H_

#include <nlohmann/json_fwd.hpp>

#include "absl/status/status.h"
#include "core/problem.h"

namespace attention::server {

/// Reads the "options" object of a parameter set's config.json
/// (parameter_set_config.h lists them) into a problem whose scoring function is
/// chosen. INVALID_ARGUMENT, beginning with "options.NAME", for an unknown
/// name, a value of the wrong type, and a scale or sigma that the scoring
/// function has not.
absl::Status ReadParameterSetOptions(const nlohmann::json& options,
                                     AttentionProblem& defaults);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_MODELS_PARAMETER_SET_OPTIONS_H_
