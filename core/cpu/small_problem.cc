#include "core/cpu/small_problem.h"

#include <cstdint>
#include <variant>

#include "core/cpu/flush_subnormals.h"
#include "core/cpu/scoring/score_unit.h"
#include "core/result_places.h"

namespace attention::cpu {
namespace {

constexpr int64_t kFloat = sizeof(float);
// Larger ones are computed faster in tiles, or worth a second thread.
constexpr int64_t kMostRows = 256;
constexpr int64_t kMostMultiplications = int64_t{64} * 1024;

bool AreFloatRows(const TensorView& view) {
  return view.strides[3] == kFloat && view.strides[0] % kFloat == 0 &&
         view.strides[1] % kFloat == 0 && view.strides[2] % kFloat == 0 &&
         reinterpret_cast<uintptr_t>(view.data) % kFloat == 0;
}

const float* FirstRow(const TensorView& view, int64_t batch, int64_t head) {
  return reinterpret_cast<const float*>(view.At(batch, head, 0, 0));
}

}  // namespace

bool IsSmallProblem(const ValidatedProblem& problem) {
  // Extents first: most problems are done with here. Their product fits, as
  // Validate() has seen.
  const int64_t rows =
      problem.batch * problem.query_heads * problem.query_length;
  if (problem.key_length > kSmallKeys || problem.key_length == 0 ||
      problem.key_width > kSmallWidth || problem.value_width > kSmallWidth ||
      rows > kMostRows ||
      rows * problem.key_length * (problem.key_width + problem.value_width) >
          kMostMultiplications) {
    return false;
  }
  const bool plain =
      std::holds_alternative<ScaledDotProduct>(problem.scoring) &&
      problem.query.type == DataType::kFloat32 && !problem.softcap &&
      !HasRangeMask(problem) && !problem.attend_mask && !problem.bias &&
      !problem.alibi_slopes && !problem.sinks && problem.dropout.p == 0 &&
      problem.wanted.OfOneSweep() && !problem.wanted.lse;
  return plain && problem.key_value.size() == 1 &&
         AreFloatRows(problem.query) &&
         AreFloatRows(problem.key_value[0].key) &&
         AreFloatRows(problem.key_value[0].value);
}

bool ComputeSmall(AttentionJob& job, const RunContext& context,
                  const Kernels& kernels) {
  const FlushSubnormals fast;
  const ValidatedProblem& problem = *job.problem;
  const auto& [key, value, first_key, key_count] = problem.key_value[0];
  const ResultPlaces places(problem, job.outputs);
  SmallArgs args = {};
  args.rows = problem.query_length;
  args.keys = problem.key_length;
  args.width = problem.key_width;
  args.value_width = problem.value_width;
  args.query_stride = problem.query.strides[2] / kFloat;
  args.key_stride = key.strides[2] / kFloat;
  args.value_stride = value.strides[2] / kFloat;
  args.output_stride = places.output_row_stride() / kFloat;
  args.factor = FactorOf(problem.scale * UnitOf(problem).one);
  for (int64_t batch = 0; batch < problem.batch; ++batch) {
    for (int64_t head = 0; head < problem.query_heads; ++head) {
      args.query = FirstRow(problem.query, batch, head);
      args.key = FirstRow(key, batch, problem.KvHead(head));
      args.value = FirstRow(value, batch, problem.KvHead(head));
      args.output = reinterpret_cast<float*>(places.Output(batch, head, 0));
      if (!kernels.attend_small(args)) return false;
    }
  }
  job.tiles_total = job.tiles_computed = 1;
  job.status = absl::OkStatus();
  if (context.on_tile) context.on_tile();
  return true;
}

}  // namespace attention::cpu
