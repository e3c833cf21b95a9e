// Engine::WorkingBytes() beside what computing really takes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <utility>

#include "core/engine.h"
#include "tests/unit/core/counted_memory.h"
#include "tests/unit/core/zero_problem.h"

namespace attention {
namespace {

using testing::ZeroCase;
using testing::ZeroProblem;

// Whatever is computed takes some objects of some bytes.
constexpr int64_t kSmallObjects = 256 << 10;

const ZeroCase kCases[] = {
    {.name = "Plain",
     .heads = 4,
     .queries = 300,
     .keys = 300,
     .key_width = 64,
     .value_width = 64},
    {.name = "Weights",
     .heads = 4,
     .queries = 300,
     .keys = 300,
     .key_width = 64,
     .value_width = 64,
     .weights = true},
    {.name = "KeyWeights",
     .heads = 4,
     .queries = 600,
     .keys = 20'000,
     .more = {.key_weights = true}},
    {.name = "TopK",
     .heads = 4,
     .queries = 300,
     .keys = 2000,
     .key_width = 64,
     .value_width = 64,
     .more = {.top_k = 2000}},
    {.name = "Scores",
     .heads = 4,
     .queries = 300,
     .keys = 300,
     .key_width = 64,
     .value_width = 64,
     .more = {.scores = ScoreStage::kMasked}},
    {.name = "ScoresOfGaussian",
     .heads = 2,
     .queries = 300,
     .keys = 300,
     .key_width = 512,
     .value_width = 512,
     .gaussian = true,
     .more = {.scores = ScoreStage::kScaled}},
    {.name = "Half",
     .heads = 4,
     .queries = 300,
     .keys = 300,
     .key_width = 64,
     .value_width = 64,
     .type = DataType::kFloat16},
    {.name = "BFloat",
     .heads = 4,
     .queries = 300,
     .keys = 300,
     .key_width = 64,
     .value_width = 64,
     .type = DataType::kBFloat16},
    {.name = "Additive",
     .heads = 2,
     .queries = 50,
     .keys = 60,
     .key_width = 64,
     .value_width = 64,
     .hidden = 2048},
    {.name = "Bilinear",
     .heads = 2,
     .queries = 50,
     .keys = 60,
     .key_width = 2000,
     .value_width = 64,
     .bilinear = true},
    {.name = "Gaussian",
     .heads = 2,
     .queries = 300,
     .keys = 300,
     .key_width = 512,
     .value_width = 512,
     .gaussian = true},
    {.name = "Decode",
     .heads = 2,
     .queries = 1,
     .keys = 20'000,
     .key_width = 64,
     .value_width = 256},
    {.name = "WideKeys",
     .queries = 50,
     .keys = 50,
     .key_width = 200'000,
     .value_width = 8},
    {.name = "WideValuesOfNoKeys",
     .queries = 1,
     .keys = 0,
     .value_width = 3'000'000},
    {.name = "WideValues", .queries = 1, .keys = 1, .value_width = 3'000'000},
    {.name = "WideValuesOfHalf",
     .queries = 3,
     .keys = 4,
     .value_width = 1'000'000,
     .type = DataType::kFloat16},
    {.name = "WideValuesOfManyQueries",
     .queries = 60,
     .keys = 20,
     .value_width = 200'000},
    {.name = "WideValuesWithWeights",
     .heads = 2,
     .queries = 20,
     .keys = 20,
     .value_width = 300'000,
     .weights = true},
    {.name = "WideValuesWithNan",
     .queries = 20,
     .keys = 20,
     .value_width = 300'000,
     .nan = true},
};

// Nobody counts their memory (Engine::IsQuick).
TEST(QuickProblemsTest, FitIntoWhatAThreadKeeps) {
  EngineOptions options;
  options.backend = "cpu";
  options.threads = 1;
  const auto engine = *Engine::Create(std::move(options));
  int quick = 0;
  const auto expect_fits = [&](const ZeroCase& of) {
    const ZeroProblem zeros(of);
    if (!engine->IsQuick(zeros.problem())) return;
    ++quick;
    EXPECT_EQ(engine->WorkingBytes(zeros.problem()), 0)
        << Name(of.type) << ", widths " << of.key_width << " and "
        << of.value_width << ", hidden " << of.hidden << ", bilinear "
        << of.bilinear << ", Gaussian " << of.gaussian << ", weights "
        << of.weights;
  };
  for (const DataType type :
       {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16}) {
    for (const int64_t width : {1, 100, 1000, 4000, 8000, 16'000}) {
      for (const bool weights : {false, true}) {
        ZeroCase of = {.name = "Quick",
                       .key_width = width,
                       .value_width = 1,
                       .type = type,
                       .weights = weights};
        expect_fits(of);
        of.gaussian = true;
        expect_fits(of);
        std::swap(of.key_width, of.value_width);
        expect_fits(of);
        of.gaussian = false;
        expect_fits(of);
        of.bilinear = true;
        expect_fits(of);
        of.bilinear = false;
        of.hidden = std::max<int64_t>(1, width / 20);
        of.value_width = 1;
        expect_fits(of);
      }
    }
  }
  EXPECT_GT(quick, 100);
}

using Parameter = std::tuple<std::string, int, ZeroCase>;

class WorkingBytesTest : public ::testing::TestWithParam<Parameter> {
 protected:
  WorkingBytesTest() {
    EngineOptions options;
    options.backend = std::get<0>(GetParam());
    options.threads = std::get<1>(GetParam());
    engine_ = *Engine::Create(std::move(options));
  }
  // Most bytes that were allocated while it was computed.
  int64_t Measure(ZeroProblem& zeros) const {
    const int64_t before = testing::LiveBytes();
    testing::ForgetPeak();
    EXPECT_TRUE(engine_->Run(zeros.job()).ok());
    return testing::PeakBytes() - before;
  }

  std::unique_ptr<Engine> engine_;
};

TEST_P(WorkingBytesTest, IsNotLessThanWhatIsTakenAndGivenBack) {
  ZeroProblem zeros(std::get<2>(GetParam()));
  const int64_t kept =
      engine_->workers().threads() * Backend::kThreadBytes + kSmallObjects;
  const int64_t bound = engine_->WorkingBytes(zeros.problem());
  const int64_t before = testing::LiveBytes();
  EXPECT_LE(Measure(zeros), bound + kept);
  EXPECT_LE(testing::LiveBytes() - before, kept);
}

// Otherwise problems would be refused for nothing.
TEST_P(WorkingBytesTest, IsNotMuchMoreThanOneThreadTakes) {
  if (std::get<1>(GetParam()) > 1) return;
  ZeroProblem zeros(std::get<2>(GetParam()));
  const int64_t bound = engine_->WorkingBytes(zeros.problem());
  EXPECT_LE(bound, 2 * Measure(zeros));
}

INSTANTIATE_TEST_SUITE_P(
    All, WorkingBytesTest,
    ::testing::Combine(::testing::Values("cpu", "reference"),
                       ::testing::Values(1, 3), ::testing::ValuesIn(kCases)),
    [](const auto& test) {
      return std::get<0>(test.param) + "On" +
             std::to_string(std::get<1>(test.param)) + "Threads" +
             std::get<2>(test.param).name;
    });

}  // namespace
}  // namespace attention
