#ifndef ATTENTION_SERVER_WIRE_PROBLEM_TRANSLATION_H_
#define ATTENTION_SERVER_WIRE_PROBLEM_TRANSLATION_H_

#include "absl/status/statusor.h"
#include "core/problem.h"
#include "server/wire/request_decoder.h"

namespace attention::server {

/// Longest AttendRequest.id, in bytes.
inline constexpr size_t kMostIdBytes = 256;

/// What `request` asks, as views into its memory: it must outlive the problem
/// and stay where it is.
///
/// INVALID_ARGUMENT, beginning with the field's name, for what only the wire
/// can get wrong: missing tensors, unknown enum values, byte counts that are
/// not what the shape needs, an id that is too long. Everything else is
/// Validate()'s.
absl::StatusOr<AttentionProblem> TranslateToProblem(
    const DecodedAttendRequest& request);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_WIRE_PROBLEM_TRANSLATION_H_
