#ifndef ATTENTION_CLIENT_CLI_FAILURE_H_
#define ATTENTION_CLIENT_CLI_FAILURE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

/// How attention-client tells a person what went wrong: one line on stderr.
namespace attention::cli {

inline constexpr int kExitSuccess = 0;
inline constexpr int kExitFailure = 1;
inline constexpr int kExitUsage = 2;

/// An error of how the program was called, which ends it with kExitUsage.
absl::Status UsageError(absl::string_view message);

/// What a call to `server` ended with, as a sentence that says what to do where
/// the server cannot be reached, cannot serve now, was too slow, or said when
/// to try again.
absl::Status CallError(const absl::Status& status, const std::string& server);

/// Prints "attention-client: message" to stderr; the exit code that belongs to
/// the status: kExitUsage for a UsageError(), kExitSuccess for OK (and prints
/// nothing), else kExitFailure.
int Report(const absl::Status& status);

/// Prints "note: message" to stderr.
void Note(absl::string_view message);

}  // namespace attention::cli

#endif  // ATTENTION_CLIENT_CLI_FAILURE_H_
