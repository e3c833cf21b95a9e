#ifndef ATTENTION_TESTS_UNIT_CPU_BF16_FIXTURE_H_
#define ATTENTION_TESTS_UNIT_CPU_BF16_FIXTURE_H_

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/cpu/cpu_test.h"

namespace attention::test {

/// Computes every problem on all of Bf16TestTargets() that multiply its keys'
/// type, which is the parameter, and queries of the same type, or of BF16 where
/// keys are of one byte; the oracle, which takes longer, is asked once.
class Bf16Fixture : public ::testing::TestWithParam<DataType> {
 public:
  /// A test's name by its parameter.
  static std::string NameOf(const ::testing::TestParamInfo<DataType>& test) {
    return std::string(Name(test.param));
  }

 protected:
  /// Whether the parameter is FP16 rather than BF16.
  static bool IsFp16() { return GetParam() == DataType::kFloat16; }
  /// Of Bf16TestTargets(), those that multiply the parameter's type.
  static std::vector<std::string> Targets() {
    std::vector<std::string> targets = Bf16TestTargets();
    std::erase_if(targets, [](const std::string& target) {
      return IsFp16() && !absl::StrContains(target, "_AMX");
    });
    return targets;
  }

  /// FP16 is split for a kv group of 64 rows or more, and bytes become BF16 for
  /// one of 4 or more (plan.cc).
  static int64_t Queries(int64_t more) {
    const bool bf16 = GetParam() == DataType::kBFloat16;
    return more + (IsFp16() ? 64 : bf16 ? 0 : 3);
  }

  /// A problem that these products compute.
  static ProblemSpec Prefill() {
    return {.batch = 1,
            .query_heads = 4,
            .kv_heads = 2,
            .query_length = 103,
            .key_length = 270,
            .width = 36,
            .value_width = 40,
            .type = IsFp16() ? DataType::kFloat16 : DataType::kBFloat16,
            .key_type = GetParam()};
  }

  /// Holds every target's results to the oracle's.
  void Check(const ProblemSpec& spec) {
    Check(MakeProblem(spec, TestSeed()).problem);
  }
  void Check(const AttentionProblem& problem) {
    const Expected expected = ComputeExpected(problem);
    for (const std::string& target : Targets()) {
      SCOPED_TRACE(target);
      TargetRunner runner(target);
      ASSERT_OK_AND_ASSIGN(const Results results, runner.Run(problem));
      EXPECT_TRUE(Matches(problem, expected, results));
      EXPECT_THAT(runner.kernel(),
                  ::testing::StartsWith(IsFp16() ? "fp16_amx" : "bf16"));
    }
  }
  /// With and without returned weights: they are not computed alike.
  void CheckBoth(ProblemSpec spec) {
    for (const bool weights : {false, true}) {
      spec.wanted.weights = weights;
      Check(spec);
    }
  }
};

}  // namespace attention::test

#endif  // ATTENTION_TESTS_UNIT_CPU_BF16_FIXTURE_H_
