// Every instruction set that the build has kernels for and the processor runs.

#include <iostream>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/cpu/cpu_backend.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/cpu_test_targets.h"
#include "tests/support/factors.h"
#include "tests/support/kernel_tables.h"
#include "tests/support/random.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tolerance.h"
#include "tests/unit/cpu/target_runner.h"

namespace attention::test {
namespace {

TEST(CpuTargetsTest, AreAtLeastOneHere) {
  EXPECT_THAT(CpuTargets(), ::testing::Not(::testing::IsEmpty()));
}

TEST(CpuTargetsTest, AnUnknownOneIsRefusedWithTheListOfThose) {
  const auto backend = MakeCpuBackend("MMX");
  EXPECT_THAT(backend, StatusIs(absl::StatusCode::kInvalidArgument,
                                ::testing::HasSubstr(CpuTargets()[0])));
}

TEST(CpuTargetsTest, TheBackendSaysWhichOneItUses) {
  for (const std::string& target : CpuTargets()) {
    ASSERT_OK_AND_ASSIGN(const auto backend, MakeCpuBackend(target));
    EXPECT_EQ(backend->instruction_set(), target);
  }
}

// Which of them ran on the processor is for whoever releases a build to read:
// tests/skipped repeats the line.
TEST(CpuTargetsTest, ProductsOfBf16AreTestedOnAnyProcessor) {
  std::vector<std::string> emulated;
  for (const std::string& target : Bf16TestTargets()) {
    if (absl::EndsWith(target, "_EMULATED")) emulated.push_back(target);
  }
  EXPECT_THAT(emulated,
              ::testing::Contains(::testing::EndsWith("_AMX_EMULATED")));
  EXPECT_THAT(emulated,
              ::testing::Contains(::testing::EndsWith("_BF16_EMULATED")));
  std::cout << "instruction sets on this processor: "
            << absl::StrJoin(CpuTargets(), ", ")
            << "; in emulation: " << absl::StrJoin(emulated, ", ") << "\n";
}

// Rows that bring no kernel of any of them a new option are left out. The
// oracle is asked once for all.
TEST(CpuTargetsTest, EveryKernelAnswersEveryOptionWithFullTiles) {
  std::map<std::string, KernelCoverage> coverage;
  for (const std::string& target : CpuTestTargets()) {
    coverage.emplace(target, KernelCoverage(KernelsOfCpu(target)));
  }
  for (const auto& [table_index, row] : KernelTableRows()) {
    const KernelTable& table = KernelTables()[table_index];
    std::optional<OwnedProblem> owned;
    std::optional<Expected> expected;
    for (auto& [target, of_target] : coverage) {
      if (!of_target.Needs(table, row)) continue;
      SCOPED_TRACE(target);
      SCOPED_TRACE(Describe(table.factors, table.rows[row]));
      if (!owned) {
        owned.emplace(MakeProblem(SpecOf(table.factors, table.rows[row]),
                                  TestSeed() + row));
        expected = ComputeExpected(owned->problem);
      }
      TargetRunner runner(target);
      ASSERT_OK_AND_ASSIGN(const Results results, runner.Run(owned->problem));
      EXPECT_TRUE(Matches(owned->problem, *expected, results));
      of_target.Add(runner.kernel(), table, row);
    }
  }
  for (const auto& [target, of_target] : coverage) {
    EXPECT_THAT(of_target.Missing(), ::testing::IsEmpty()) << target;
  }
}

// Parameter: instruction set, row of the covering array.
using PairwiseOnTargetTest =
    ::testing::TestWithParam<std::tuple<std::string, size_t>>;

TEST_P(PairwiseOnTargetTest, MatchesTheOracle) {
  const auto& [target, row] = GetParam();
  SCOPED_TRACE(absl::StrCat("ATTENTION_TEST_SEED=", TestSeed()));
  SCOPED_TRACE(Describe(FactorRows()[row]));
  const OwnedProblem owned =
      MakeProblem(SpecOf(FactorRows()[row]), TestSeed() + row);
  TargetRunner runner(target);
  ASSERT_OK_AND_ASSIGN(const Results results, runner.Run(owned.problem));
  EXPECT_TRUE(Matches(owned.problem, results));
}

INSTANTIATE_TEST_SUITE_P(
    Targets, PairwiseOnTargetTest,
    ::testing::Combine(::testing::ValuesIn(CpuTestTargets()),
                       ::testing::Range(size_t{0}, FactorRows().size())),
    [](const auto& test) {
      return absl::StrCat(std::get<0>(test.param), "_row",
                          std::get<1>(test.param));
    });

}  // namespace
}  // namespace attention::test
