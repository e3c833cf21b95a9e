#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <ctime>
#include <functional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "core/cpu/cpu_backend.h"
#include "core/cpu/targets.h"
#include "core/engine.h"
#include "tests/unit/core/problem_builder.h"

namespace attention {
namespace {

// What came of it, without its problem and its outputs.
AttentionJob RunJob(const Engine& engine, const AttentionProblem& problem,
                    const std::stop_source& stop,
                    std::function<void()> before_tile = {}) {
  const auto valid = Validate(problem);
  Tensor output =
      Tensor::Create(DataType::kFloat32, valid->output_shape).value();
  AttentionJob job;
  job.problem = &*valid;
  job.outputs.output = output.mutable_view();
  job.stop = stop.get_token();
  job.before_tile = std::move(before_tile);
  engine.Run(job).IgnoreError();
  job.problem = nullptr;  // gone with this call
  return job;
}

// Every backend of this machine's processor, held to the same: a stop ends the
// work within a tile per thread.
class CancellationTest : public ::testing::TestWithParam<std::string> {
 protected:
  // Runs a problem of many tiles that asks for a stop at tile `stop_at`.
  AttentionJob Run(int threads, int64_t stop_at) {
    std::atomic<int64_t> tiles = 0;
    std::stop_source stop;
    const auto engine = Engine::Create(
        {.threads = threads, .backend = GetParam(), .on_tile = [&] {
           if (++tiles == stop_at) stop.request_stop();
         }});
    testing::ProblemBuilder builder({2, 4, 200, 8}, {2, 2, 4000, 8},
                                    {2, 2, 4000, 8});
    return RunJob(**engine, builder.problem, stop);
  }
};

TEST_P(CancellationTest, StopsWithinATile) {
  const AttentionJob job = Run(1, 5);
  EXPECT_EQ(job.status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(job.tiles_computed, 5);
  EXPECT_GT(job.tiles_total, 100);
}

TEST_P(CancellationTest, StopsWithinATilePerThread) {
  const AttentionJob job = Run(4, 5);
  EXPECT_EQ(job.status.code(), absl::StatusCode::kCancelled);
  EXPECT_GE(job.tiles_computed, 5);
  EXPECT_LE(job.tiles_computed, 5 + 4);
}

TEST_P(CancellationTest, ComputesEveryTileWhenNobodyStopsIt) {
  const AttentionJob whole = Run(1, -1);
  EXPECT_TRUE(whole.status.ok());
  EXPECT_EQ(whole.tiles_computed, whole.tiles_total);
}

// Processor time of one tile of the cpu backend with a hidden layer of 2^17,
// which may ask for a stop as it begins.
std::clock_t TimeOfWideTile(bool stops) {
  constexpr int64_t kHidden = int64_t{1} << 17;
  std::stop_source stop;
  const auto engine =
      Engine::Create({.threads = 1, .backend = "cpu", .on_tile = [&] {
                        if (stops) stop.request_stop();
                      }});
  testing::ProblemBuilder builder({8, 1}, {128, 64}, {128, 1});
  builder.problem.scoring =
      Additive{builder.Zeros(DataType::kFloat32, {1, kHidden}),
               builder.Zeros(DataType::kFloat32, {64, kHidden}),
               builder.Zeros(DataType::kFloat32, {kHidden})};
  const std::clock_t start = std::clock();
  const AttentionJob job = RunJob(**engine, builder.problem, stop);
  const std::clock_t end = std::clock();
  EXPECT_EQ(job.tiles_computed, 1);
  EXPECT_EQ(job.status.ok(), !stops);
  return end - start;
}

TEST(CancellationOfWideScoresTest, StopsWithinAPartOfATile) {
  EXPECT_LT(3 * TimeOfWideTile(true), TimeOfWideTile(false));
}

int projections = 0;
std::stop_source* stops_projections = nullptr;

void CountProjection(const cpu::ProjectArgs& args) {
  ++projections;
  cpu::Targets()[0].project(args);
}

void ProjectAndStop(const cpu::ProjectArgs& args) {
  stops_projections->request_stop();
  CountProjection(args);
}

// How many projections the cpu backend computes where the first one, or what it
// gives way to, asks for a stop.
int ProjectionsUntilStopped(const testing::ProblemBuilder& builder,
                            bool as_it_gives_way = false) {
  cpu::Kernels kernels = cpu::Targets()[0];
  kernels.project = as_it_gives_way ? CountProjection : ProjectAndStop;
  EngineOptions options;
  options.threads = 1;
  options.backend = "cpu";
  options.more_backends.push_back(MakeCpuBackend(kernels));
  const auto engine = Engine::Create(std::move(options));
  std::stop_source stop;
  stops_projections = &stop;
  projections = 0;
  const AttentionJob job =
      RunJob(**engine, builder.problem, stop, [&stop, as_it_gives_way] {
        if (as_it_gives_way) stop.request_stop();
      });
  EXPECT_EQ(job.status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(job.tiles_computed, 0);
  return projections;
}

TEST(CancellationOfProjectionsTest, StopsWithinABilinearOne) {
  testing::ProblemBuilder builder({8, 640}, {16, 128}, {16, 1});
  builder.problem.scoring =
      Bilinear{builder.Zeros(DataType::kFloat32, {640, 128})};
  EXPECT_EQ(ProjectionsUntilStopped(builder), 1);
}

TEST(CancellationOfProjectionsTest, StopsWithinAnAdditiveOne) {
  testing::ProblemBuilder builder({8, 640}, {16, 128}, {16, 1});
  builder.problem.scoring =
      Additive{builder.Zeros(DataType::kFloat32, {640, 128}),
               builder.Zeros(DataType::kFloat32, {128, 128}),
               builder.Zeros(DataType::kFloat32, {128})};
  EXPECT_EQ(ProjectionsUntilStopped(builder), 1);
}

// Of all columns at once, the matrix has few rows.
TEST(CancellationOfProjectionsTest, StopsWithinARowOfAWideMatrix) {
  testing::ProblemBuilder builder({8, 16}, {16, 16}, {16, 1});
  builder.problem.scoring =
      Additive{builder.Zeros(DataType::kFloat32, {16, 2048}),
               builder.Zeros(DataType::kFloat32, {16, 2048}),
               builder.Zeros(DataType::kFloat32, {2048})};
  EXPECT_EQ(ProjectionsUntilStopped(builder), 1);
}

TEST(CancellationOfProjectionsTest, GivesWayBetweenThem) {
  testing::ProblemBuilder builder({8, 640}, {16, 128}, {16, 1});
  builder.problem.scoring =
      Bilinear{builder.Zeros(DataType::kFloat32, {640, 128})};
  EXPECT_EQ(ProjectionsUntilStopped(builder, /*as_it_gives_way=*/true), 1);
}

std::vector<std::string> Backends() {
  std::vector<std::string> names = BackendNames();
  names.erase(names.begin());  // auto
  names.erase(names.begin());  // cuda, which counts launches, not tiles
  return names;
}

INSTANTIATE_TEST_SUITE_P(Backends, CancellationTest,
                         ::testing::ValuesIn(Backends()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace attention
