// Results beside output, weights and lse: their shapes, and which k are
// refused.

#include <cstdint>
#include <string>

#include "core/validate.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/core/problem_builder.h"

namespace attention {
namespace {

using test::StatusIs;
using ::testing::ElementsAre;
using testing::ProblemBuilder;

void ExpectRefused(const AttentionProblem& problem,
                   const std::string& message) {
  EXPECT_THAT(Validate(problem).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, message));
}

TEST(ValidateResults, NamesTheirShapes) {
  ProblemBuilder builder;
  builder.problem.wanted.top_k = 2;
  builder.problem.wanted.key_weights = true;
  const auto valid = Validate(builder.problem);
  ASSERT_TRUE(valid.ok()) << valid.status();
  EXPECT_THAT(valid->top_k_shape, ElementsAre(2, 4, 3, 2));
  EXPECT_THAT(valid->key_weights_shape, ElementsAre(2, 4, 5));
}

TEST(ValidateResults, HaveTheQuerysRank) {
  ProblemBuilder three({2, 3, 8}, {2, 5, 8}, {2, 5, 6});
  three.problem.wanted = {.top_k = 2, .key_weights = true};
  EXPECT_THAT(Validate(three.problem)->top_k_shape, ElementsAre(2, 3, 2));
  EXPECT_THAT(Validate(three.problem)->key_weights_shape, ElementsAre(2, 5));
  ProblemBuilder two({3, 8}, {5, 8}, {5, 6});
  two.problem.wanted = {.top_k = 2, .key_weights = true};
  EXPECT_THAT(Validate(two.problem)->top_k_shape, ElementsAre(3, 2));
  EXPECT_THAT(Validate(two.problem)->key_weights_shape, ElementsAre(5));
}

TEST(ValidateResults, TopKIsFrom1ToTheNumberOfKeys) {
  ProblemBuilder builder;
  builder.problem.wanted.top_k = 0;
  ExpectRefused(builder.problem,
                "top_k: 0 (expected 1 to 5, the number of keys)");
  builder.problem.wanted.top_k = -3;
  ExpectRefused(builder.problem,
                "top_k: -3 (expected 1 to 5, the number of keys)");
  builder.problem.wanted.top_k = 6;
  ExpectRefused(builder.problem,
                "top_k: 6 (expected 1 to 5, the number of keys)");
  builder.problem.wanted.top_k = 5;
  EXPECT_TRUE(Validate(builder.problem).ok());
}

TEST(ValidateResults, NoTopKOfNoKeys) {
  ProblemBuilder builder({3, 8}, {0, 8}, {0, 6});
  builder.problem.wanted.top_k = 1;
  ExpectRefused(builder.problem, "top_k: 1 (there are no keys)");
}

TEST(ValidateResults, CountsTheirBytes) {
  ProblemBuilder builder;
  const int64_t output = Validate(builder.problem)->ResultBytes();
  builder.problem.wanted.top_k = 2;
  EXPECT_EQ(Validate(builder.problem)->ResultBytes(),
            output + 2L * 4 * 3 * 2 * (8 + 4));
  builder.problem.wanted = {.key_weights = true};
  EXPECT_EQ(Validate(builder.problem)->ResultBytes(), output + 2L * 4 * 5 * 4);
  builder.problem.wanted = {.scores = ScoreStage::kCapped};
  EXPECT_EQ(Validate(builder.problem)->ResultBytes(),
            output + 2L * 4 * 3 * 5 * 4);
}

}  // namespace
}  // namespace attention
