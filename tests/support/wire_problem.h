#ifndef ATTENTION_TESTS_SUPPORT_WIRE_PROBLEM_H_
#define ATTENTION_TESTS_SUPPORT_WIRE_PROBLEM_H_

#include "absl/status/statusor.h"
#include "attention_client/client.h"
#include "core/problem.h"
#include "tests/support/results.h"

namespace attention::test {

/// The request that asks a server for what a problem asks an engine: row-major
/// copies of its tensors, its blocks of keys put together (there must be one at
/// least), and every option that is not at its default.
client::AttendRequest ToRequest(const AttentionProblem& problem);

/// What a server answered, without where and how it was computed.
Results ToResults(client::AttendResult result);

/// Both, with a call between them.
absl::StatusOr<Results> AttendOver(const client::Client& client,
                                   const AttentionProblem& problem);

}  // namespace attention::test

#endif  // ATTENTION_TESTS_SUPPORT_WIRE_PROBLEM_H_
