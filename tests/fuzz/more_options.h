#ifndef ATTENTION_TESTS_FUZZ_MORE_OPTIONS_H_
#define ATTENTION_TESTS_FUZZ_MORE_OPTIONS_H_

#include <cstdint>
#include <string>

#include "core/problem.h"
#include "tests/fuzz/choice_reader.h"
#include "tests/support/random_problem.h"

namespace attention::test {

inline constexpr double kOffsets[] = {0, 1e4, 0x1p31, 0x1p62, -0x1p62, -1e4};

/// What is in no ProblemSpec.
struct MoreOptions {
  int64_t bits;      // Bits in the source
  int64_t repeated;  // extents whose strides are 0, a bit for each
};

/// Into `spec`, what factors have no level for or not beside each other: batch
/// and heads, results, dropout, offsets and windows. A byte of 0 changes
/// nothing.
MoreOptions ReadMoreOptions(ChoiceReader& reader, ProblemSpec& spec);

/// The rest, into a problem that was made of it.
void SetMoreOptions(const MoreOptions& more, AttentionProblem& problem);

/// Whether it is to be asked as WithOwnKeys(); never of no entries.
bool HasOwnKeys(const MoreOptions& more, const AttentionProblem& problem);

/// Both, for a person.
std::string DescribeMore(const ProblemSpec& spec, const MoreOptions& more);

}  // namespace attention::test

#endif  // ATTENTION_TESTS_FUZZ_MORE_OPTIONS_H_
