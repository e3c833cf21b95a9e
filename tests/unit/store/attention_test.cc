#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/engine.h"
#include "core/store/sequence.h"
#include "core/validate.h"
#include "tests/support/random.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/store/rows.h"

namespace attention::store {
namespace {

using test::IsOk;
using test::Random;
using ::testing::FloatNear;
using ::testing::Pointwise;

constexpr int64_t kHeads = 2;
constexpr int64_t kKeys = 300;
constexpr int64_t kWidth = 16;
constexpr int64_t kValueWidth = 24;

Tensor Normal(Shape shape, uint64_t seed) {
  Random random(seed);
  Tensor tensor = Tensor::Create(DataType::kFloat32, std::move(shape)).value();
  std::vector<float> values(static_cast<size_t>(tensor.element_count()));
  for (float& value : values) value = static_cast<float>(random.Normal());
  std::memcpy(tensor.data(), values.data(), tensor.bytes().size());
  return tensor;
}

// Rows first ... first + count - 1 of every head of a tensor (Hkv, n, D).
TensorView RowsOf(const Tensor& tensor, int64_t first, int64_t count) {
  TensorView view = tensor.view();
  view.data += first * view.strides[1];
  view.shape[1] = count;
  return view;
}

// A tensor (Hkv, n, D) as (1, Hkv, n, D).
TensorView Batched(const Tensor& tensor) {
  const Shape& shape = tensor.shape();
  return ContiguousView(tensor.type(), {1, shape[0], shape[1], shape[2]},
                        tensor.data());
}

class StoreAttentionTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    engine_ = Engine::Create({.threads = 2, .backend = GetParam()}).value();
  }

  std::vector<float> Attend(const AttentionProblem& problem) const {
    const ValidatedProblem valid = Validate(problem).value();
    Tensor output =
        Tensor::Create(DataType::kFloat32, valid.output_shape).value();
    AttentionJob job;
    job.problem = &valid;
    job.outputs.output = output.mutable_view();
    EXPECT_THAT(engine_->Run(job), IsOk());
    return output.ToFloats();
  }

  // Four query heads, two of them for each key head.
  AttentionProblem Problem(int64_t queries) {
    query_ = Normal({1, 2 * kHeads, queries, kWidth}, 3);
    AttentionProblem problem;
    problem.query = query_.view();
    problem.masks.causal = Causal::kBottomRight;
    problem.masks.window.left = 200;
    return problem;
  }

  std::unique_ptr<Engine> engine_;
  Tensor query_;
};

TEST_P(StoreAttentionTest, PagesMeanWhatOneTensorMeans) {
  const Tensor key = Normal({kHeads, kKeys, kWidth}, 1);
  const Tensor value = Normal({kHeads, kKeys, kValueWidth}, 2);
  const auto sequence = testing::MakeSequence(
      {.heads = kHeads, .key_width = kWidth, .value_width = kValueWidth});
  for (int64_t first = 0, count = 1; first < kKeys; first += count) {
    count = std::min(kKeys - first, count + 30);
    ASSERT_THAT(
        sequence->Append(
            0, first, {RowsOf(key, first, count), RowsOf(value, first, count)}),
        IsOk());
  }
  const Snapshot snapshot = sequence->TakeSnapshot(0).value();
  for (const int64_t queries : {1, 40}) {
    AttentionProblem problem = Problem(queries);
    problem.key_value = {{Batched(key), Batched(value)}};
    const std::vector<float> expected = Attend(problem);
    problem.key_value = snapshot.Blocks();
    EXPECT_EQ(problem.key_value.size(), 5U);
    EXPECT_THAT(Attend(problem), Pointwise(FloatNear(2e-6F), expected));
  }
}

TEST_P(StoreAttentionTest, AnEmptySequenceGivesEmptyRows) {
  const auto sequence = testing::MakeSequence(
      {.heads = kHeads, .key_width = kWidth, .value_width = kValueWidth});
  const Snapshot snapshot = sequence->TakeSnapshot(0).value();
  AttentionProblem problem = Problem(3);
  problem.key_value = snapshot.Blocks();
  EXPECT_EQ(Attend(problem),
            std::vector<float>(2 * kHeads * 3 * kValueWidth, 0.0F));
}

INSTANTIATE_TEST_SUITE_P(Backends, StoreAttentionTest,
                         ::testing::Values("auto", "reference"),
                         [](const auto& test) {
                           return std::string(test.param);
                         });

}  // namespace
}  // namespace attention::store
