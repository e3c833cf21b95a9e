#ifndef ATTENTION_TESTS_SUPPORT_COVERING_ARRAY_H_
#define ATTENTION_TESTS_SUPPORT_COVERING_ARRAY_H_

#include <vector>

namespace attention::test {

/// Rows of levels, one level per factor, in which every pair of levels of any
/// two factors stands side by side at least once: tests of all pairs of options
/// need some tens of rows where all combinations would need billions. Greedy
/// (Cohen, Dalal, Fredman, Patton, "The AETG system", 1997); the same rows
/// every time.
std::vector<std::vector<int>> PairwiseCoveringArray(
    const std::vector<int>& level_counts);

}  // namespace attention::test

#endif  // ATTENTION_TESTS_SUPPORT_COVERING_ARRAY_H_
