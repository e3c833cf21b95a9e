#ifndef ATTENTION_TESTS_SUPPORT_PACKED_PROBLEM_H_
#define ATTENTION_TESTS_SUPPORT_PACKED_PROBLEM_H_

#include <cstdint>
#include <vector>

#include "tests/support/owned_problem.h"
#include "tests/support/random_problem.h"

namespace attention::test {

/// Queries and keys of an entry.
struct EntryLengths {
  int64_t queries;
  int64_t keys;
};

/// The same problems each by itself and as one packed batch. All have the
/// parameters of the first.
struct PackedProblem {
  std::vector<OwnedProblem> entries;  // of four dimensions and batch 1
  OwnedProblem packed;
};

/// Leaves out of `spec` what packed batches do not have.
void MakePackable(ProblemSpec& spec);

/// `spec` says what the entries are like, but for batch and lengths. The
/// batch's top_k is of as many keys as its longest entry has, at most.
PackedProblem MakePackedProblem(ProblemSpec spec,
                                const std::vector<EntryLengths>& lengths,
                                uint64_t seed);

}  // namespace attention::test

#endif  // ATTENTION_TESTS_SUPPORT_PACKED_PROBLEM_H_
