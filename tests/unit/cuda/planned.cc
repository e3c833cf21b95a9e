#include "tests/unit/cuda/planned.h"

namespace attention::cuda {

const DeviceProperties kDevice = {
    .name = "NVIDIA H200",
    .compute_capability = 90,
    .multiprocessors = 132,
    .shared_memory_per_block = int64_t{227} * 1024,
    .memory = int64_t{139} << 30};

TensorView View(DataType type, const Shape& shape) {
  return ContiguousView(type, shape, nullptr);
}

namespace {

AttentionProblem ProblemOf(const Spec& spec) {
  AttentionProblem problem;
  problem.query = View(
      spec.type, {spec.batch, spec.query_heads, spec.query_length, spec.width});
  problem.key_value.push_back(
      {View(spec.type,
            {spec.batch, spec.kv_heads, spec.key_length, spec.width}),
       View(spec.type,
            {spec.batch, spec.kv_heads, spec.key_length, spec.value_width})});
  problem.scoring = spec.scoring;
  problem.softcap = spec.softcap;
  problem.masks.causal = spec.causal;
  problem.wanted = spec.wanted;
  return problem;
}

}  // namespace

ValidatedProblem Valid(const Spec& spec) {
  return Validate(ProblemOf(spec)).value();
}

Plan PlanOf(const Spec& spec, const PlanOptions& options) {
  return MakePlan(Valid(spec), kDevice, options);
}

Scoring AdditiveOf(int64_t width, int64_t hidden, int64_t heads) {
  const auto shape = [&](Shape rest) {
    if (heads > 0) rest.insert(rest.begin(), heads);
    return rest;
  };
  return Additive{View(DataType::kFloat32, shape({width, hidden})),
                  View(DataType::kFloat32, shape({width, hidden})),
                  View(DataType::kFloat32, shape({hidden}))};
}

Scoring BilinearOf(int64_t width) {
  return Bilinear{View(DataType::kFloat32, {width, width})};
}

std::vector<Spec> LargeShapes() {
  return {
      {.batch = 64,
       .query_heads = 128,
       .kv_heads = 8,
       .query_length = 16384,
       .key_length = 16384,
       .width = 128,
       .value_width = 128},
      {.batch = 1,
       .query_heads = 1,
       .kv_heads = 1,
       .query_length = 1 << 30,
       .key_length = 4,
       .width = 1,
       .value_width = 1},
      {.batch = 1,
       .query_heads = 1,
       .kv_heads = 1,
       .query_length = 1,
       .key_length = int64_t{1} << 32,
       .width = 64,
       .value_width = 64},
      {.batch = 1 << 20,
       .query_heads = 64,
       .kv_heads = 64,
       .query_length = 1,
       .key_length = 1,
       .width = 1,
       .value_width = 1},
      {.query_length = 4096,
       .key_length = 4096,
       .width = 100'000,
       .value_width = 100'000},
      {.query_length = 8192, .key_length = 8192, .wanted = kWeights},
      {.query_length = 8192, .scoring = AdditiveOf(64, 512)},
      {.type = DataType::kFloat16},
  };
}

}  // namespace attention::cuda
