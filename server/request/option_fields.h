#ifndef ATTENTION_SERVER_REQUEST_OPTION_FIELDS_H_
#define ATTENTION_SERVER_REQUEST_OPTION_FIELDS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/problem.h"
#include "server/request/option_value.h"
#include "server/request/scoring_names.h"

/// The one table of a request's options. attention.v1 and the Open Inference
/// Protocol, config.json, error texts and the documentation read it; a test
/// holds attention.proto and the client's command to it.
namespace attention::server {

enum class OptionType : uint8_t { kNumber, kInteger, kUnsigned, kBool, kWord };

// In the order in which the table is read.
// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding)
struct OptionField {
  absl::string_view name;
  OptionType type;
  absl::string_view range;    // for people: "> 0, finite FP32; 0 is off"
  absl::string_view absent;   // what holds without it
  absl::string_view meaning;  // for people, in a few words
  /// Sets it in a problem whose scoring function is chosen and has it.
  /// INVALID_ARGUMENT, without the name, for a value of another type or an
  /// unknown word; whether a value is in range is Validate()'s to say.
  absl::Status (*set)(const OptionValue& value, AttentionProblem& problem);
  /// The scoring functions that have it.
  ScoringSet scorings = kAnyScoring;
  /// Of kWord: all of them.
  absl::Span<const absl::string_view> words = {};
};

absl::Span<const OptionField> OptionFields();

/// Null where there is none of that name.
const OptionField* FindOption(absl::string_view name);

/// All names, in their order, with ", " between them.
std::string OptionNames();

/// Sets an option of a problem whose scoring function is chosen.
/// INVALID_ARGUMENT, without the name, for what OptionField::set refuses and
/// for an option that the scoring function does not have.
absl::Status SetOption(const OptionField& option, const OptionValue& value,
                       AttentionProblem& problem);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_REQUEST_OPTION_FIELDS_H_
