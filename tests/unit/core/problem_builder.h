#ifndef ATTENTION_TESTS_UNIT_CORE_PROBLEM_BUILDER_H_
#define ATTENTION_TESTS_UNIT_CORE_PROBLEM_BUILDER_H_

#include <cstdint>
#include <cstring>
#include <deque>
#include <utility>
#include <vector>

#include "core/problem.h"
#include "core/tensor.h"

namespace attention::testing {

inline constexpr DataType kF32 = DataType::kFloat32;

/// Owns the tensors of a problem and hands out views of them, so that a test
/// can spoil one field of a good problem in one line.
class ProblemBuilder {
 public:
  /// A good problem: B = 2, Hq = 4, Hkv = 2, Lq = 3, Lk = 5, D = 8, Dv = 6.
  ProblemBuilder() {
    problem.query = Zeros(kF32, {2, 4, 3, 8});
    problem.key_value.push_back(
        {Zeros(kF32, {2, 2, 5, 8}), Zeros(kF32, {2, 2, 5, 6})});
  }

  /// query (L, D), key (Lk, D), value (Lk, Dv) and so on, of these shapes.
  ProblemBuilder(Shape query, Shape key, Shape value) {
    problem.query = Zeros(kF32, std::move(query));
    problem.key_value.push_back(
        {Zeros(kF32, std::move(key)), Zeros(kF32, std::move(value))});
  }

  TensorView Zeros(DataType type, Shape shape) {
    return Keep(Tensor::Create(type, std::move(shape)).value());
  }
  TensorView Ints(Shape shape, const std::vector<int32_t>& values) {
    return Keep(Tensor::FromInts(std::move(shape), values));
  }
  TensorView Longs(Shape shape, const std::vector<int64_t>& values) {
    Tensor tensor = Tensor::Create(DataType::kInt64, std::move(shape)).value();
    std::memcpy(tensor.data(), values.data(), values.size() * sizeof(int64_t));
    return Keep(std::move(tensor));
  }
  TensorView Floats(Shape shape, const std::vector<float>& values) {
    return Keep(Tensor::FromFloats(std::move(shape), values));
  }
  TensorView Bytes(Shape shape, const std::vector<uint8_t>& values) {
    Tensor tensor = Tensor::Create(DataType::kBool, std::move(shape)).value();
    for (size_t i = 0; i < values.size(); ++i) {
      tensor.data()[i] = static_cast<std::byte>(values[i]);
    }
    return Keep(std::move(tensor));
  }

  AttentionProblem problem;

 private:
  TensorView Keep(Tensor tensor) {
    tensors_.push_back(std::move(tensor));
    return tensors_.back().view();
  }

  std::deque<Tensor> tensors_;
};

}  // namespace attention::testing

#endif  // ATTENTION_TESTS_UNIT_CORE_PROBLEM_BUILDER_H_
