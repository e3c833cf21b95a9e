// Engine::WorkingBytes() beside what computing really takes, and what becomes
// of jobs without memory: this program counts its allocations, lets one fail,
// and is linked so that it can (-Wl,--wrap=malloc and others).
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/engine.h"
#include "core/validate.h"

namespace {

std::atomic<int64_t> live{0};
std::atomic<int64_t> peak{0};
// Calls of new, from now on, up to the one that fails; 0: none does.
std::atomic<int64_t> until_failure{0};

void* Counted(void* memory) {
  const int64_t now = live +=
      static_cast<int64_t>(::malloc_usable_size(memory));
  int64_t before = peak;
  while (before < now && !peak.compare_exchange_weak(before, now)) {
  }
  return memory;
}

void Uncount(void* memory) {
  live -= static_cast<int64_t>(::malloc_usable_size(memory));
}

}  // namespace

// NOLINTBEGIN(bugprone-reserved-identifier): the linker's names
extern "C" {
void* __real_malloc(size_t size);
void* __real_calloc(size_t count, size_t size);
void* __real_realloc(void* memory, size_t size);
void* __real_aligned_alloc(size_t alignment, size_t size);
int __real_posix_memalign(void** memory, size_t alignment, size_t size);
void __real_free(void* memory);

void* __wrap_malloc(size_t size) { return Counted(__real_malloc(size)); }
void* __wrap_calloc(size_t count, size_t size) {
  return Counted(__real_calloc(count, size));
}
void* __wrap_realloc(void* memory, size_t size) {
  Uncount(memory);
  return Counted(__real_realloc(memory, size));
}
void* __wrap_aligned_alloc(size_t alignment, size_t size) {
  return Counted(__real_aligned_alloc(alignment, size));
}
int __wrap_posix_memalign(void** memory, size_t alignment, size_t size) {
  const int error = __real_posix_memalign(memory, alignment, size);
  if (error == 0) Counted(*memory);
  return error;
}
void __wrap_free(void* memory) {
  Uncount(memory);
  __real_free(memory);
}
}  // extern "C"
// NOLINTEND(bugprone-reserved-identifier)

// What is allocated by new, also in shared libraries.
void* operator new(size_t size) {
  if (until_failure > 0) {
    --until_failure;
    if (until_failure == 0) throw std::bad_alloc();
  }
  void* memory = std::malloc(std::max<size_t>(size, 1));
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  return std::malloc(std::max<size_t>(size, 1));
}
void* operator new(size_t size, std::align_val_t alignment,
                   const std::nothrow_t&) noexcept {
  void* memory = nullptr;
  const int error = posix_memalign(&memory, static_cast<size_t>(alignment),
                                   std::max<size_t>(size, 1));
  return error == 0 ? memory : nullptr;
}
void* operator new(size_t size, std::align_val_t alignment) {
  void* memory = operator new(size, alignment, std::nothrow);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t,
                     const std::nothrow_t&) noexcept {
  std::free(memory);
}

namespace attention {
namespace {

// Whatever is computed takes some objects of some bytes.
constexpr int64_t kSmallObjects = 256 << 10;

struct Case {
  const char* name;
  int64_t heads = 1;
  int64_t queries = 1;
  int64_t keys = 1;
  int64_t key_width = 8;
  int64_t value_width = 8;
  int64_t hidden = 0;  // additive, where it is not 0
  DataType type = DataType::kFloat32;
  bool bilinear = false;  // otherwise
  bool gaussian = false;
  bool weights = false;
  bool nan = false;  // among the values
  WantedOutputs more = {};
};

const Case kCases[] = {
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

// Tensors of zeros.
class ZeroProblem {
 public:
  explicit ZeroProblem(const Case& of) {
    AttentionProblem problem;
    problem.query = Add(of.type, {1, of.heads, of.queries, of.key_width});
    problem.key_value.push_back(
        {Add(of.type, {1, of.heads, of.keys, of.key_width}),
         Add(of.type, {1, of.heads, of.keys, of.value_width})});
    if (of.nan) {
      *reinterpret_cast<float*>(memory_.back().data()) =
          std::numeric_limits<float>::quiet_NaN();
    }
    if (of.hidden > 0) {
      problem.scoring = Additive{Add(of.type, {of.key_width, of.hidden}),
                                 Add(of.type, {of.key_width, of.hidden}),
                                 Add(of.type, {of.hidden})};
    } else if (of.bilinear) {
      problem.scoring = Bilinear{Add(of.type, {of.key_width, of.key_width})};
    } else if (of.gaussian) {
      problem.scoring = Gaussian{};
    }
    problem.wanted = of.more;
    problem.wanted.weights = of.weights;
    problem_.emplace(*Validate(problem));
    AddMoreResults();
    job_.problem = &*problem_;
    job_.outputs.output =
        AddResult(of.type, {1, of.heads, of.queries, of.value_width});
    if (of.weights) {
      job_.outputs.weights =
          AddResult(DataType::kFloat32, {1, of.heads, of.queries, of.keys});
    }
  }

  const ValidatedProblem& problem() const { return *problem_; }
  AttentionJob& job() { return job_; }

 private:
  void AddMoreResults() {
    AttentionOutputs& outputs = job_.outputs;
    const auto add = [this](DataType type, const Shape& shape) {
      return MutableContiguousView(type, shape, Take(type, shape));
    };
    const WantedOutputs& wanted = problem_->wanted;
    if (wanted.top_k) {
      outputs.top_k_indices = add(DataType::kInt64, problem_->top_k_shape);
      outputs.top_k_weights = add(DataType::kFloat32, problem_->top_k_shape);
    }
    if (wanted.key_weights) {
      outputs.key_weights =
          add(DataType::kFloat32, problem_->key_weights_shape);
    }
    if (wanted.scores) {
      outputs.scores = add(DataType::kFloat32, problem_->weights_shape);
    }
  }
  std::byte* Take(DataType type, const Shape& shape) {
    int64_t bytes = ByteSize(type);
    for (const int64_t extent : shape) bytes *= extent;
    return memory_.emplace_back(static_cast<size_t>(bytes)).data();
  }
  TensorView Add(DataType type, const Shape& shape) {
    return ContiguousView(type, shape, Take(type, shape));
  }
  MutableTensorView AddResult(DataType type, const Shape& shape) {
    return MutableContiguousView(type, shape, Take(type, shape));
  }

  std::vector<std::vector<std::byte>> memory_;
  std::optional<ValidatedProblem> problem_;
  AttentionJob job_;
};

// Whichever allocation fails, a job that was computed before is not touched.
TEST(WithoutMemoryTest, WhatIsComputedStays) {
  EngineOptions options;
  options.backend = "cpu";
  options.threads = 1;
  const auto engine = *Engine::Create(std::move(options));
  const WorkerPool::InPlace one_thread;
  bool failed = true;
  for (int64_t n = 1; failed; ++n) {
    ZeroProblem small({.name = "Small", .keys = 4});
    ZeroProblem large({.name = "Large", .queries = 300, .keys = 300});
    std::vector<AttentionJob> jobs = {small.job(), large.job()};
    jobs[0].outputs.output.data[0] = std::byte{1};
    until_failure = n;
    engine->backends()[0]->Run(absl::MakeSpan(jobs), {engine->workers()});
    failed = until_failure == 0;
    until_failure = 0;
    const bool computed = jobs[0].outputs.output.data[0] == std::byte{0};
    EXPECT_EQ(jobs[0].status.ok(), computed) << "allocation " << n;
    EXPECT_TRUE(failed || (computed && jobs[1].status.ok()));
  }
}

// Nobody counts their memory (Engine::IsQuick).
TEST(QuickProblemsTest, FitIntoWhatAThreadKeeps) {
  EngineOptions options;
  options.backend = "cpu";
  options.threads = 1;
  const auto engine = *Engine::Create(std::move(options));
  int quick = 0;
  const auto expect_fits = [&](const Case& of) {
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
        Case of = {.name = "Quick",
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

using Parameter = std::tuple<std::string, int, Case>;

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
    const int64_t before = live;
    peak = before;
    EXPECT_TRUE(engine_->Run(zeros.job()).ok());
    return peak - before;
  }

  std::unique_ptr<Engine> engine_;
};

TEST_P(WorkingBytesTest, IsNotLessThanWhatIsTakenAndGivenBack) {
  ZeroProblem zeros(std::get<2>(GetParam()));
  const int64_t kept =
      engine_->workers().threads() * Backend::kThreadBytes + kSmallObjects;
  const int64_t bound = engine_->WorkingBytes(zeros.problem());
  const int64_t before = live;
  EXPECT_LE(Measure(zeros), bound + kept);
  EXPECT_LE(live - before, kept);
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
