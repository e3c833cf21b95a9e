// Every instance of every kernel by its name: each is machine code of its own,
// so each can be wrong on its own. Those for several entries are compiled once
// more.

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/cuda/entries_job.h"
#include "core/cuda/loader.h"
#include "core/store/page_layout.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/gpu/instance_cases.h"
#include "tests/parity/backend_test.h"
#include "tests/support/own_keys.h"
#include "tests/support/random.h"

namespace attention::test {
namespace {

using ::testing::Contains;

OwnedProblem ProblemOf(const InstanceCase& made) {
  OwnedProblem owned = MakeProblem(made.spec, TestSeed());
  if (!made.nan_behind_lengths) return owned;
  const int64_t last = made.spec.key_length - 1;
  owned.problem.masks.valid_lens = owned.Add(
      DataType::kInt32, {made.spec.batch}, Layout::kRowMajor,
      [last](absl::Span<const int64_t>) { return static_cast<double>(last); });
  Fill(Slice(owned.problem.key_value[0].value, 2, last, last + 1),
       std::numeric_limits<double>::quiet_NaN());
  return owned;
}

class InstanceTest : public ::testing::TestWithParam<InstanceCase> {};

TEST_P(InstanceTest, MatchesTheOracle) {
  const OwnedProblem owned = ProblemOf(GetParam());
  ASSERT_OK_AND_ASSIGN(const ValidatedProblem valid, Validate(owned.problem));
  ASSERT_OK_AND_ASSIGN(const cuda::Devices devices, cuda::OpenDevices());
  if (GetParam().instance.starts_with("attend_wgmma") &&
      !devices[0]->properties().wgmma) {
    GTEST_SKIP() << "for devices of compute capability 9.0, and builds with "
                    "CUTLASS";
  }
  ASSERT_THAT(InstancesOf(cuda::MakePlan(valid, devices[0]->properties())),
              Contains(GetParam().instance));
  if (GetParam().instance.starts_with("softmax_rows")) {
    // Without cuBLAS other kernels would answer in its place.
    if (const absl::Status gemm = devices[0]->LoadGemm(); !gemm.ok()) {
      GTEST_SKIP() << gemm;
    }
  }
  const auto engine = MakeEngine(Backends()[0]);
  ASSERT_OK_AND_ASSIGN(const Results first, RunOn(*engine, owned.problem));
  EXPECT_TRUE(Matches(owned.problem, first));
  ASSERT_OK_AND_ASSIGN(const Results second, RunOn(*engine, owned.problem));
  EXPECT_TRUE(SameBits(first, second));
}

INSTANTIATE_TEST_SUITE_P(Kernels, InstanceTest,
                         ::testing::ValuesIn(InstanceCases()),
                         [](const auto& test) { return test.param.name; });

// Of each class of entries, what computes them in one launch (KernelTable). It
// has code for all options, so those with one are left out.
std::vector<InstanceCase> EntriesCases() {
  std::vector<InstanceCase> cases;
  for (InstanceCase& made : InstanceCases()) {
    for (const std::string kernel :
         {"attend_mma", "attend_dot", "attend_gaussian", "recompute_dot",
          "recompute_gaussian"}) {
      if (!made.instance.starts_with(kernel) ||
          (kernel == "attend_mma" && !made.name.ends_with("_options_all") &&
           !made.name.ends_with("_options_split"))) {
        continue;
      }
      made.name = absl::StrCat("entries_", made.name);
      made.spec.batch = 2;
      made.spec.wanted = {.weights = false, .lse = true};
      cases.push_back(made);
    }
  }
  return cases;
}

// The same problem, the keys of each entry in pages as a sequence has them.
AttentionProblem InPages(AttentionProblem problem) {
  SplitIntoBlocks(problem, store::kPageKeys);
  return WithOwnKeys(problem);
}

class EntriesInstanceTest : public ::testing::TestWithParam<InstanceCase> {};

TEST_P(EntriesInstanceTest, GivesTheBitsOfASingleProblem) {
  const OwnedProblem owned = ProblemOf(GetParam());
  ASSERT_OK_AND_ASSIGN(const ValidatedProblem valid, Validate(owned.problem));
  ASSERT_OK_AND_ASSIGN(const cuda::Devices devices, cuda::OpenDevices());
  const cuda::Plan plan = cuda::MakePlan(valid, devices[0]->properties());
  ASSERT_THAT(InstancesOf(plan), Contains(GetParam().instance));
  ASSERT_TRUE(cuda::ServesEntries(valid, plan));
  const auto engine = MakeEngine(Backends()[0]);
  ASSERT_OK_AND_ASSIGN(const Results whole, RunOn(*engine, owned.problem));
  ASSERT_OK_AND_ASSIGN(const Results paged,
                       RunOn(*engine, InPages(owned.problem)));
  EXPECT_TRUE(Matches(owned.problem, paged));
  EXPECT_TRUE(SameBits(paged, whole));
}

INSTANTIATE_TEST_SUITE_P(Kernels, EntriesInstanceTest,
                         ::testing::ValuesIn(EntriesCases()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace attention::test
