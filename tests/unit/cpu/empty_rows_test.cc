// Rows in which no key takes part, beside rows in which some do.

#include "gtest/gtest.h"
#include "tests/unit/cpu/cpu_test.h"

namespace attention::test {
namespace {

class EmptyRowsTest : public CpuTest {
 protected:
  // The first 40 rows stand before every key.
  static ProblemSpec Some(EmptyRows empty) {
    return {.batch = 1,
            .query_heads = 2,
            .kv_heads = 1,
            .query_length = 75,
            .key_length = 270,
            .width = 12,
            .value_width = 9,
            .causal = Causal::kTopLeft,
            .query_offset = -40,
            .empty_rows = empty};
  }
};

TEST_P(EmptyRowsTest, OfEveryScoring) {
  for (const EmptyRows empty : {EmptyRows::kZero, EmptyRows::kUniform}) {
    for (const ScoringKind scoring : kAllScorings) {
      ProblemSpec spec = Some(empty);
      spec.scoring = scoring;
      Check(spec);
      spec.attend_mask = MaskExtents::kAll;
      spec.keys_per_block = 100;
      Check(spec);
    }
  }
}

TEST_P(EmptyRowsTest, UniformUnderDropout) {
  for (const bool after : {false, true}) {
    ProblemSpec spec = Some(EmptyRows::kUniform);
    spec.dropout = {.training = true, .p = 0.4, .seed = 5};
    spec.wanted.weights_after_dropout = after;
    Check(spec);
  }
}

TEST_P(EmptyRowsTest, AllOfThem) {
  for (const EmptyRows empty : {EmptyRows::kZero, EmptyRows::kUniform}) {
    ProblemSpec spec = Some(empty);
    spec.bias = MaskExtents::kAll;
    spec.bias_masks = 1;
    Check(spec);
  }
}

TEST_P(EmptyRowsTest, OfWideProblems) {
  ProblemSpec spec = {.query_length = 70,
                      .key_length = 9,
                      .width = 2049,
                      .value_width = 5,
                      .causal = Causal::kTopLeft,
                      .query_offset = -3,
                      .empty_rows = EmptyRows::kUniform};
  Check(spec);
}

INSTANTIATE_FOR_TARGETS(EmptyRowsTest);

}  // namespace
}  // namespace attention::test
