#ifndef ATTENTION_TESTS_SUPPORT_PACKED_ENTRIES_H_
#define ATTENTION_TESTS_SUPPORT_PACKED_ENTRIES_H_

#include <cstdint>
#include <vector>

#include "core/problem.h"
#include "gtest/gtest.h"
#include "tests/support/oracle.h"
#include "tests/support/results.h"

/// A packed batch, taken apart from the numeric contract alone: nothing of it
/// is shared with core/batch.cc.
namespace attention::test {

int64_t EntriesOf(const AttentionProblem& packed);

/// Entry `n` as a problem by itself, of four dimensions, which looks into the
/// same memory. Of top_k it wants as many as it has keys, at most.
AttentionProblem EntryOf(const AttentionProblem& packed, int64_t n);

/// The part of a packed batch's results that is that entry's, as it answers by
/// itself.
Results ResultsOfEntry(const AttentionProblem& packed, int64_t n,
                       const Results& results);

/// What is expected of every entry.
std::vector<Expected> ComputeExpectedOfEntries(const AttentionProblem& packed);

/// Every wanted result of every entry against the oracle, and rows of top_k
/// that are not full.
::testing::AssertionResult MatchesEntries(const AttentionProblem& packed,
                                          const std::vector<Expected>& expected,
                                          const Results& results);

}  // namespace attention::test

#endif  // ATTENTION_TESTS_SUPPORT_PACKED_ENTRIES_H_
