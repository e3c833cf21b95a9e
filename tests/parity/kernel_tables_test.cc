// Every kernel of the cpu backend with every option that it supports, in sizes
// that fill its tiles: on every backend against the oracle.

#include "tests/support/kernel_tables.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/random.h"
#include "tests/support/results.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tolerance.h"

namespace attention::test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// The emulated device whose plan cuts small problems, too.
constexpr char kInSlices[] = "cuda_emulated_small";

// Parameter: table, row.
class KernelTablesTest
    : public ::testing::TestWithParam<std::pair<size_t, size_t>> {
 protected:
  // The oracle, which takes longest, is asked once for all backends that
  // compute the same.
  static void Check(const std::vector<std::string>& backends) {
    const KernelTable& table = KernelTables()[GetParam().first];
    const std::vector<int>& row = table.rows[GetParam().second];
    SCOPED_TRACE(absl::StrCat("ATTENTION_TEST_SEED=", TestSeed()));
    SCOPED_TRACE(Describe(table.factors, row));
    const ProblemSpec spec = SpecOf(table.factors, row);
    std::map<std::optional<DataType>, std::vector<std::string>> alike;
    for (const std::string& backend : backends) {
      alike[SpecFor(backend, spec).key_type].push_back(backend);
    }
    for (const auto& [key_type, names] : alike) {
      ProblemSpec computed = spec;
      computed.key_type = key_type;
      const OwnedProblem owned =
          MakeProblem(computed, TestSeed() + GetParam().second);
      const Expected expected = ComputeExpected(owned.problem);
      for (const std::string& backend : names) {
        SCOPED_TRACE(backend);
        const auto engine = MakeEngine(backend);
        const AttentionProblem problem = WithoutRefused(*engine, owned.problem);
        ASSERT_OK_AND_ASSIGN(const Results results, RunOn(*engine, problem));
        EXPECT_TRUE(Matches(problem, expected, results));
      }
    }
  }
};

TEST_P(KernelTablesTest, MatchTheOracle) {
  std::vector<std::string> backends = Backends();
  std::erase(backends, kInSlices);
  Check(backends);
}

// Of their own, because they are for the night (tests/Sanitizers.cmake).
using KernelTablesInSlicesTest = KernelTablesTest;

TEST_P(KernelTablesInSlicesTest, MatchTheOracle) { Check({kInSlices}); }

// Without emulated devices there are none.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(KernelTablesInSlicesTest);

std::vector<std::pair<size_t, size_t>> RowsInSlices() {
  const std::vector<std::string> backends = Backends();
  if (std::count(backends.begin(), backends.end(), kInSlices) == 0) return {};
  return KernelTableRows();
}

std::string NameOfRow(
    const ::testing::TestParamInfo<KernelTablesTest::ParamType>& test) {
  return absl::StrCat(KernelTables()[test.param.first].name, "_row",
                      test.param.second);
}

INSTANTIATE_TEST_SUITE_P(Kernels, KernelTablesTest,
                         ::testing::ValuesIn(KernelTableRows()), NameOfRow);
INSTANTIATE_TEST_SUITE_P(Kernels, KernelTablesInSlicesTest,
                         ::testing::ValuesIn(RowsInSlices()), NameOfRow);

TEST(KernelCoverageTest, EveryKernelAnswersEveryOptionThatItSupports) {
  const auto engine = MakeEngine("cpu");
  KernelCoverage coverage(
      KernelsOfCpu(engine->backends()[0]->instruction_set()));
  for (const auto& [table_index, row] : KernelTableRows()) {
    const KernelTable& table = KernelTables()[table_index];
    if (!coverage.Needs(table, row)) continue;
    const OwnedProblem owned =
        MakeProblem(SpecOf(table.factors, table.rows[row]), TestSeed() + row);
    ASSERT_OK_AND_ASSIGN(const Results results, RunOn(*engine, owned.problem));
    coverage.Add(results.kernel, table, row);
  }
  EXPECT_THAT(coverage.Missing(), IsEmpty());
}

TEST(KernelCoverageTest, NamesKernelsThatNoRowReaches) {
  EXPECT_THAT(KernelCoverage({"fp32_decode", "bf16_amx"}).Missing(),
              ElementsAre("bf16_amx", "fp32_decode"));
}

TEST(KernelCoverageTest, NamesLevelsThatAKernelHasNotAnswered) {
  KernelCoverage coverage({"fp32_tiles"});
  const KernelTable& table = KernelTables()[0];
  for (size_t row = 0; row < table.rows.size(); ++row) {
    const bool left_out =
        SpecOf(table.factors, table.rows[row]).softcap == 30.0;
    if (!left_out) coverage.Add("fp32_tiles", table, row);
    EXPECT_EQ(coverage.Needs(table, row), left_out);
  }
  EXPECT_THAT(coverage.Missing(), ElementsAre("fp32_tiles: softcap 30"));
}

}  // namespace
}  // namespace attention::test
