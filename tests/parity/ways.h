#ifndef ATTENTION_TESTS_PARITY_WAYS_H_
#define ATTENTION_TESTS_PARITY_WAYS_H_

#include <cstdint>

#include "tests/support/random_problem.h"

namespace attention::test {

/// Lengths of queries and keys that take a way of their own through a backend.
struct Way {
  const char* name;
  int64_t query_length;
  int64_t key_length;
};

inline constexpr Way kWays[] = {{"tiny", 3, 6},
                                {"decode", 1, 2100},
                                {"part_of_a_tile", 5, 70},
                                {"more_than_a_tile", 40, 600},
                                {"many_queries", 130, 150}};

/// The types whose kernels differ.
inline constexpr DataType kWayTypes[] = {DataType::kFloat32,
                                         DataType::kBFloat16};

inline ProblemSpec SpecOf(const Way& way, DataType type) {
  return {.batch = 1,
          .query_heads = way.query_length == 1 ? 4 : 1,
          .query_length = way.query_length,
          .key_length = way.key_length,
          .width = 16,
          .value_width = 16,
          .type = type};
}

}  // namespace attention::test

#endif  // ATTENTION_TESTS_PARITY_WAYS_H_
