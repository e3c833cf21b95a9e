#ifndef ATTENTION_TESTS_UNIT_CUDA_PLANNED_H_
#define ATTENTION_TESTS_UNIT_CUDA_PLANNED_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "core/cuda/plan.h"
#include "core/problem.h"
#include "core/validate.h"

namespace attention::cuda {

/// A device that is there to be had.
extern const DeviceProperties kDevice;

inline constexpr WantedOutputs kWeights = {.weights = true};

/// What plans follow from. No tensor has any bytes: plans do not look at them.
struct Spec {
  int64_t batch = 2;
  int64_t query_heads = 4;
  int64_t kv_heads = 4;
  int64_t query_length = 1024;
  int64_t key_length = 1024;
  int64_t width = 64;
  int64_t value_width = 64;
  DataType type = DataType::kFloat32;
  Scoring scoring = ScaledDotProduct();
  std::optional<double> softcap = {};
  Causal causal = Causal::kNone;
  WantedOutputs wanted = {};
};

/// A row-major view of no memory.
TensorView View(DataType type, const Shape& shape);

/// Parameters of a width and a hidden width; each head's own where `heads` are
/// given.
Scoring AdditiveOf(int64_t width, int64_t hidden, int64_t heads = 0);

/// Of queries and keys of a width.
Scoring BilinearOf(int64_t width);

ValidatedProblem Valid(const Spec& spec);

/// On kDevice.
Plan PlanOf(const Spec& spec, const PlanOptions& options = {});

/// Shapes that are large in one way or another.
std::vector<Spec> LargeShapes();

}  // namespace attention::cuda

#endif  // ATTENTION_TESTS_UNIT_CUDA_PLANNED_H_
