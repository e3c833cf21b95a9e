#include "core/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "core/cpu/cpu_backend.h"
#include "tests/unit/core/problem_builder.h"

namespace attention {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

TEST(Engine, KnowsItsBackends) {
  EXPECT_EQ(BackendNames()[0], "auto");
  EXPECT_THAT(BackendNames(), Contains("reference"));
  EXPECT_THAT(BackendNames(), Contains("cuda"));
}

TEST(Engine, RefusesAnUnknownBackendAndListsThem) {
  const auto engine = Engine::Create({.threads = 1, .backend = "tpu"});
  EXPECT_EQ(engine.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(engine.status().message()),
              HasSubstr("'tpu' is not in this build (auto, "));
}

TEST(Engine, RefusesANegativeNumberOfThreads) {
  EXPECT_EQ(Engine::Create({.threads = -1}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(Engine, RefusesAnInstructionSetThatIsNotToBeHad) {
  ASSERT_EQ(setenv("ATTENTION_CPU_TARGET", "MMX", /*overwrite=*/1), 0);
  const absl::Status status = Engine::Create({.threads = 1}).status();
  ASSERT_EQ(unsetenv("ATTENTION_CPU_TARGET"), 0);
  if (CpuTargets().empty()) GTEST_SKIP() << "no kernels for this processor";
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("ATTENTION_CPU_TARGET: 'MMX'"),
                    HasSubstr(CpuTargets()[0])));
}

TEST(Engine, AutoTriesTheFastestBackendFirstAndTheReferenceLast) {
  const auto engine = Engine::Create({.threads = 1});
  ASSERT_TRUE(engine.ok()) << engine.status();
  std::vector<std::string> known = {"auto"};
  for (const UnusedBackend& unused : (*engine)->unused()) {
    EXPECT_EQ(unused.name, "cuda");
    EXPECT_FALSE(unused.reason.ok());
    known.emplace_back(unused.name);
  }
  std::vector<std::string> tried;
  for (const auto& backend : (*engine)->backends()) {
    tried.emplace_back(backend->name());
  }
  known.insert(known.end(), tried.begin(), tried.end());
  EXPECT_EQ(known, BackendNames());
  EXPECT_EQ(tried.back(), "reference");
  if (CpuTargets().empty()) GTEST_SKIP() << "no kernels for this processor";
  EXPECT_EQ(tried[tried.size() - 2], "cpu");
}

TEST(Engine, SaysWhichBackendAndKernelAnswered) {
  const auto engine = Engine::Create({.threads = 1, .backend = "reference"});
  ASSERT_TRUE(engine.ok());
  testing::ProblemBuilder builder({3, 2}, {4, 2}, {4, 5});
  const auto valid = Validate(builder.problem);
  ASSERT_TRUE(valid.ok());
  Tensor output =
      Tensor::Create(DataType::kFloat32, valid->output_shape).value();
  AttentionJob job;
  job.problem = &*valid;
  job.outputs.output = output.mutable_view();
  EXPECT_TRUE((*engine)->Run(job).ok());
  EXPECT_EQ(job.backend, "reference");
  EXPECT_EQ(job.kernel, "fp64_tiles");
  EXPECT_EQ(job.tiles_computed, job.tiles_total);
}

// None of these has more than 16,384 multiply-adds.
TEST(Engine, IsQuickWhereNeitherWidthNorHeadsRowsOrKeysTakeLong) {
  const auto engine = Engine::Create({.threads = 1, .backend = "reference"});
  ASSERT_TRUE(engine.ok());
  const auto is_quick = [&](Shape query, Shape key, Shape value) {
    const testing::ProblemBuilder builder(std::move(query), std::move(key),
                                          std::move(value));
    return (*engine)->IsQuick(Validate(builder.problem).value());
  };
  EXPECT_TRUE(is_quick({16, 32}, {16, 32}, {16, 32}));
  EXPECT_TRUE(is_quick({1, 8, 1, 128}, {1, 8, 8, 128}, {1, 8, 8, 128}));
  EXPECT_TRUE(is_quick({1, 4096, 0, 1}, {1, 4096, 1, 1}, {1, 4096, 1, 1}));
  EXPECT_FALSE(is_quick({1, 4096, 1, 1}, {1, 4096, 1, 1}, {1, 4096, 1, 1}));
  EXPECT_FALSE(is_quick({4096, 1, 1, 1}, {4096, 1, 1, 1}, {4096, 1, 1, 1}));
  EXPECT_FALSE(is_quick({4096, 1}, {1, 1}, {1, 1}));
  EXPECT_FALSE(is_quick({1, 1}, {4096, 1}, {4096, 1}));
}

TEST(Engine, IsQuickWhereProblemsTakeLittleTogether) {
  const auto engine = Engine::Create({.threads = 1, .backend = "reference"});
  ASSERT_TRUE(engine.ok());
  const testing::ProblemBuilder builder({1, 8, 1, 1}, {1, 8, 1, 1},
                                        {1, 8, 1, 1});
  const ValidatedProblem problem = Validate(builder.problem).value();
  EXPECT_TRUE((*engine)->IsQuick(std::vector(2, problem)));
  EXPECT_FALSE((*engine)->IsQuick(std::vector(16, problem)));
}

}  // namespace
}  // namespace attention
