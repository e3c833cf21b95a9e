#ifndef ATTENTION_TESTS_UNIT_CORE_ZERO_PROBLEM_H_
#define ATTENTION_TESTS_UNIT_CORE_ZERO_PROBLEM_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "core/backend.h"
#include "core/validate.h"

namespace attention::testing {

/// A problem by its sizes.
struct ZeroCase {
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

/// One of tensors of zeros, with places for its results.
class ZeroProblem {
 public:
  explicit ZeroProblem(const ZeroCase& of) {
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

}  // namespace attention::testing

#endif  // ATTENTION_TESTS_UNIT_CORE_ZERO_PROBLEM_H_
