#ifndef ATTENTION_SERVER_MODELS_PROBLEM_OPTIONS_H_
#define ATTENTION_SERVER_MODELS_PROBLEM_OPTIONS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/problem.h"

/// The options of a problem by the names that requests and parameter sets use:
/// scale, sigma, softcap, causal, query_offset, key_offset, window_left,
/// window_right, dropout_p, seed, training, weights_after_dropout, empty_rows.
namespace attention::server {

/// The value that an option is given, in whatever form it came. Each reading
/// says INVALID_ARGUMENT, with what the value is and what was expected, where
/// it is of another type.
class OptionValue {
 public:
  virtual ~OptionValue() = default;
  virtual absl::StatusOr<double> Number() const = 0;
  virtual absl::StatusOr<int64_t> Integer() const = 0;
  virtual absl::StatusOr<uint64_t> Unsigned() const = 0;
  virtual absl::StatusOr<bool> Bool() const = 0;
  virtual absl::StatusOr<std::string> Text() const = 0;
  /// What it is, for a message.
  virtual std::string Describe() const = 0;
};

bool IsProblemOption(absl::string_view name);

/// All names, in their order, with ", " between them.
std::string ProblemOptionNames();

/// Sets the option `name`, which is one, of a problem whose scoring function is
/// chosen. INVALID_ARGUMENT, without the name, for a value of a wrong type, a
/// word that the option does not have, and a scale or sigma that the scoring
/// function does not have. Whether a value makes sense is Validate()'s.
absl::Status SetProblemOption(absl::string_view name, const OptionValue& value,
                              AttentionProblem& problem);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_MODELS_PROBLEM_OPTIONS_H_
