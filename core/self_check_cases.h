#ifndef ATTENTION_CORE_SELF_CHECK_CASES_H_
#define ATTENTION_CORE_SELF_CHECK_CASES_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/datatype.h"
#include "core/problem.h"
#include "core/shape.h"
#include "core/tensor.h"

namespace attention {

/// Extents of a case with one batch entry.
struct SelfCheckOutline {
  DataType type = DataType::kFloat32;
  int64_t query_heads = 2;
  int64_t kv_heads = 2;
  int64_t query_length = 70;
  int64_t key_length = 100;
  int64_t width = 40;
  int64_t value_width = 0;  // 0: as wide as queries and keys
  WantedOutputs wanted = {.lse = true};
};

/// A problem of SelfCheck(), with the memory that its inputs lie in. Each
/// With...() adds an option.
class SelfCheckCase {
 public:
  SelfCheckCase(std::string name, const SelfCheckOutline& outline);

  // A copy's views would be of the original's tensors.
  SelfCheckCase(const SelfCheckCase&) = delete;
  SelfCheckCase& operator=(const SelfCheckCase&) = delete;
  SelfCheckCase(SelfCheckCase&&) noexcept = default;
  SelfCheckCase& operator=(SelfCheckCase&&) noexcept = default;

  const std::string& name() const { return name_; }
  const AttentionProblem& problem() const { return problem_; }
  /// Whether it is computed once more, at the same time as others.
  bool at_once() const { return at_once_; }

  SelfCheckCase&& AtOnce() &&;
  SelfCheckCase&& WithCausal() &&;
  SelfCheckCase&& WithBand() &&;
  SelfCheckCase&& WithWindow() &&;
  SelfCheckCase&& WithMask() &&;
  SelfCheckCase&& WithAlibiAndSinks() &&;
  SelfCheckCase&& WithDropout() &&;
  SelfCheckCase&& WithScoring(Scoring scoring) &&;
  SelfCheckCase&& WithAdditive(int64_t hidden) &&;
  SelfCheckCase&& WithBilinear() &&;
  /// The last key takes no part, and its value is NaN.
  SelfCheckCase&& WithNanBehindLength() &&;

 private:
  TensorView Make(const Shape& shape, double spread = 1) {
    return MakeOf(outline_.type, shape, spread);
  }
  // Numbers between -spread and spread, others for every tensor.
  TensorView MakeOf(DataType type, const Shape& shape, double spread);

  std::string name_;
  SelfCheckOutline outline_;
  AttentionProblem problem_;
  std::vector<Tensor> tensors_;  // query, key, value, then those of options
  bool at_once_ = false;
};

/// At least one for each kernel of a backend, in every datatype.
std::vector<SelfCheckCase> SelfCheckCases();

}  // namespace attention

#endif  // ATTENTION_CORE_SELF_CHECK_CASES_H_
