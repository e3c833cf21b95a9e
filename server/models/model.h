#ifndef ATTENTION_SERVER_MODELS_MODEL_H_
#define ATTENTION_SERVER_MODELS_MODEL_H_

#include <memory>
#include <string>

#include "core/problem.h"
#include "server/telemetry/model_statistics.h"

namespace attention::server {

/// What metrics count requests under whose model is none; no model's name.
inline constexpr char kUnknownModel[] = "unknown";

/// The one version that every model has.
inline constexpr char kModelVersion[] = "1";

/// What the Open Inference Protocol calls a model: a scoring function with
/// everything that a request need not say.
struct Model {
  std::string name;
  /// What a request starts from: the scoring function, and options where the
  /// model sets them. Without tensors of a request's own.
  AttentionProblem defaults;
  /// Whether the model's configuration says that requests are those of
  /// sequences, for tools that then send a sequence_id with each. Requests may
  /// carry one, or none, either way.
  bool sequences = false;
  /// What the views in `defaults` lie in; null where there are none.
  std::shared_ptr<const void> owner;
  std::shared_ptr<ModelCounters> counters;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_MODELS_MODEL_H_
