// Every instance of every kernel by its name: each is machine code of its own,
// so each can be wrong on its own.

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "core/cuda/loader.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/gpu/instance_cases.h"
#include "tests/parity/backend_test.h"
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
  const auto engine = MakeEngine(Backends()[0]);
  ASSERT_OK_AND_ASSIGN(const Results first, RunOn(*engine, owned.problem));
  EXPECT_TRUE(Matches(owned.problem, first));
  ASSERT_OK_AND_ASSIGN(const Results second, RunOn(*engine, owned.problem));
  EXPECT_TRUE(SameBits(first, second));
}

INSTANTIATE_TEST_SUITE_P(Kernels, InstanceTest,
                         ::testing::ValuesIn(InstanceCases()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace attention::test
