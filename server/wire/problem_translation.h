#ifndef ATTENTION_SERVER_WIRE_PROBLEM_TRANSLATION_H_
#define ATTENTION_SERVER_WIRE_PROBLEM_TRANSLATION_H_

#include "absl/status/statusor.h"
#include "core/problem.h"
#include "server/models/parameter_set.h"
#include "server/wire/request_decoder.h"

namespace attention::server {

/// Longest AttendRequest.id, in bytes.
inline constexpr size_t kMostIdBytes = 256;

/// What `request` asks, as views into its memory: it must outlive the problem
/// and stay where it is. So must `set`, the one that the request names where it
/// names one: its defaults are what the request leaves absent.
///
/// INVALID_ARGUMENT, beginning with the field's name, for what only the wire
/// can get wrong: missing tensors, unknown enum values, byte counts that are
/// not what the shape needs, an id that is too long, a scale or sigma that the
/// set's scoring function has not. NOT_FOUND where the request names a set and
/// `set` is null. Everything else is Validate()'s.
absl::StatusOr<AttentionProblem> TranslateToProblem(
    const DecodedAttendRequest& request, const ParameterSet* set = nullptr);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_WIRE_PROBLEM_TRANSLATION_H_
