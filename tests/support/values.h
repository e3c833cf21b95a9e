#ifndef ATTENTION_TESTS_SUPPORT_VALUES_H_
#define ATTENTION_TESTS_SUPPORT_VALUES_H_

#include <ostream>
#include <vector>

#include "core/datatype.h"
#include "tests/support/owned_problem.h"
#include "tests/support/random_problem.h"

namespace attention::test {

/// One kind of finite numbers: small, zero, subnormal, huge, uneven, far away.
struct Values {
  const char* name;
  void (*specify)(ProblemSpec& spec);         // of the whole problem
  void (*change)(const OwnedProblem& owned);  // afterwards

  friend void PrintTo(const Values& values, std::ostream* out) {
    *out << values.name;
  }
};

/// All kinds.
std::vector<Values> AllValues();

/// Problems for them: two tiles of keys and blocks of rows that are not full;
/// and rows of one query, whose keys a backend may split.
ProblemSpec PrefillOfValues();
ProblemSpec DecodeOfValues();

/// A problem of such numbers.
OwnedProblem MakeProblemOf(const Values& values, ScoringKind scoring,
                           bool decode, DataType type);

}  // namespace attention::test

#endif  // ATTENTION_TESTS_SUPPORT_VALUES_H_
