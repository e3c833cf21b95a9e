#include "core/cuda/plan_memory.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "core/cuda/scoring.h"

namespace attention::cuda {
namespace {

constexpr int64_t kTooMany = int64_t{1} << 62;

Element ElementOf(DataType type) {
  switch (type) {
    case DataType::kFloat16:
      return Element::kFloat16;
    case DataType::kBFloat16:
      return Element::kBFloat16;
    default:
      return Element::kFloat32;
  }
}

Buffer Place(int64_t bytes, Plan& plan) {
  if (bytes > kTooMany - kPlaceAlignment - plan.bytes) {
    plan.bytes = kTooMany;
    return {0, bytes};
  }
  const Buffer buffer{plan.bytes, bytes};
  plan.bytes =
      CeilDivide(plan.bytes + bytes, kPlaceAlignment) * kPlaceAlignment;
  return buffer;
}

bool SharedByHeads(const TensorView& parameter) {
  return parameter.shape[0] == 1 || parameter.strides[0] == 0;
}

Broadcast BroadcastOf(const TensorView& view) {
  const Compact compact = CompactOf(view);
  Broadcast broadcast;
  broadcast.type = ElementOf(view.type);
  broadcast.stride_b = compact.strides[0];
  broadcast.stride_h = compact.strides[1];
  broadcast.stride_i = compact.strides[2];
  broadcast.stride_j = compact.strides[3];
  return broadcast;
}

Rows RowsOf(const TensorView& view, int64_t heads, int64_t length,
            int64_t width) {
  return {nullptr, ElementOf(view.type), static_cast<int32_t>(width), heads,
          length};
}

int64_t BytesOf(const Rows& rows, int64_t batch) {
  return Product(
      {batch, rows.heads, rows.length, rows.width, ElementBytes(rows.type)});
}

// Multiplies `from` by a parameter (Hq, from.width, to_width); the result
// stands in for it.
ProjectArgs ProjectionOf(const ValidatedProblem& problem, const Rows& from,
                         const TensorView& matrix, int64_t to_heads) {
  const int64_t to_width = matrix.shape[2];
  ProjectArgs project;
  project.batch = problem.batch;
  project.from = from;
  project.matrix_type = ElementOf(matrix.type);
  project.matrix_stride = SharedByHeads(matrix) ? 0 : from.width * to_width;
  project.to_heads = to_heads;
  project.to_width = static_cast<int32_t>(to_width);
  return project;
}

Rows Projected(const ProjectArgs& project) {
  return {nullptr, Element::kFloat32, project.to_width, project.to_heads,
          project.from.length};
}

int64_t MatrixBytes(const ProjectArgs& project) {
  return Product({project.matrix_stride == 0 ? 1 : project.to_heads,
                  project.from.width, project.to_width,
                  ElementBytes(project.matrix_type)});
}

}  // namespace

int64_t Product(std::initializer_list<int64_t> factors) {
  int64_t product = 1;
  for (const int64_t factor : factors) {
    if (factor == 0) return 0;
    if (product > kTooMany / factor) return kTooMany;
    product *= factor;
  }
  return product;
}

Compact CompactOf(const TensorView& view) {
  Compact compact = {};
  compact.elements = 1;
  for (int n = 3; n >= 0; --n) {
    const auto index = static_cast<size_t>(n);
    const bool shared = view.strides[index] == 0 || view.shape[index] == 1;
    compact.extents[index] = shared ? 1 : view.shape[index];
    compact.strides[index] = shared ? 0 : compact.elements;
    compact.elements = Product({compact.elements, compact.extents[index]});
    if (n == 3 && !shared) {
      const int64_t unit = kReadAlignment / ByteSize(view.type);
      compact.elements = CeilDivide(compact.elements, unit) * unit;
    }
  }
  return compact;
}

void SetScoring(const ValidatedProblem& problem, Plan& plan) {
  AttentionArgs& args = plan.args;
  const ScoringParts parts = PartsOf(problem);
  args.score = parts.score;
  args.factor = parts.factor;
  if (parts.query_matrix != nullptr) {
    plan.project_query = ProjectionOf(problem, args.query, *parts.query_matrix,
                                      problem.query_heads);
    plan.query_matrix = Place(MatrixBytes(*plan.project_query), plan);
    args.query = Projected(*plan.project_query);
    plan.projected_query = Place(BytesOf(args.query, problem.batch), plan);
  }
  if (parts.key_matrix != nullptr) {
    const bool shared = SharedByHeads(*parts.key_matrix);
    plan.project_key =
        ProjectionOf(problem, args.key, *parts.key_matrix,
                     shared ? problem.kv_heads : problem.query_heads);
    plan.key_matrix = Place(MatrixBytes(*plan.project_key), plan);
    args.key = Projected(*plan.project_key);
    plan.projected_key = Place(BytesOf(args.key, problem.batch), plan);
  }
  if (parts.term_weights != nullptr) {
    const bool shared = SharedByHeads(*parts.term_weights);
    args.term_weight_stride = shared ? 0 : args.key.width;
    plan.term_weights = Place(
        Product({shared ? 1 : problem.query_heads, args.key.width, 4}), plan);
  }
}

void SetMasks(const ValidatedProblem& problem, Plan& plan) {
  AttentionArgs& args = plan.args;
  if (HasRangeMask(problem)) {
    plan.key_ranges = Place(Product({problem.batch, problem.query_length,
                                     int64_t{sizeof(KeySpan)}}),
                            plan);
  }
  if (problem.attend_mask) {
    args.attend_mask = BroadcastOf(*problem.attend_mask);
    plan.attend_mask = Place(CompactOf(*problem.attend_mask).elements, plan);
  }
  if (problem.bias) {
    args.bias = BroadcastOf(*problem.bias);
    if (!plan.in_place.bias) {
      plan.bias = Place(Product({CompactOf(*problem.bias).elements,
                                 ElementBytes(args.bias.type)}),
                        plan);
    }
  }
  const int64_t heads = Product({problem.batch, problem.query_heads, 4});
  if (problem.alibi_slopes) {
    plan.alibi_slopes = Place(heads, plan);
    plan.alibi_positions = Place(Product({problem.batch, 8}), plan);
  }
  if (problem.sinks) plan.sinks = Place(heads, plan);
  if (problem.dropout.p > 0) {
    args.dropout.active = 1;
    args.dropout.threshold =
        static_cast<uint32_t>(std::floor(std::ldexp(problem.dropout.p, 32)));
    args.dropout.first_entry = problem.packed_entry;
    args.dropout.seed = problem.dropout.seed;
    args.dropout.kept = static_cast<float>(1 / (1 - problem.dropout.p));
  }
}

Plan PlanOfInputs(const ValidatedProblem& problem, const InPlace& in_place) {
  Plan plan;
  AttentionArgs& args = plan.args;
  args.batch = problem.batch;
  args.query_heads = problem.query_heads;
  args.query_length = problem.query_length;
  args.key_length = problem.key_length;
  if (problem.softcap) {
    // Within FP32, with an inverse: below 2^-60 every score counts as capped.
    args.softcap = std::clamp(*problem.softcap, 0x1p-60, 0x1.FFFFFEp127);
  }
  args.uniform_empty_rows = problem.empty_rows == EmptyRows::kUniform ? 1 : 0;
  args.weights_after_dropout = problem.wanted.weights_after_dropout ? 1 : 0;
  args.output_type = ElementOf(problem.query.type);
  args.query = RowsOf(problem.query, problem.query_heads, problem.query_length,
                      problem.query_width);
  if (problem.key_length == 0) return plan;
  args.key = RowsOf(problem.key_value[0].key, problem.kv_heads,
                    problem.key_length, problem.key_width);
  args.value = RowsOf(problem.key_value[0].value, problem.kv_heads,
                      problem.key_length, problem.value_width);
  plan.in_place = in_place;
  const auto place = [&](bool in_place_already, const Rows& rows) {
    if (in_place_already) return Buffer();
    return Place(BytesOf(rows, problem.batch), plan);
  };
  plan.query = place(in_place.query, args.query);
  plan.key = place(in_place.key, args.key);
  plan.value = place(in_place.value, args.value);
  return plan;
}

void PlaceScratch(const ValidatedProblem& problem, const PlanOptions& options,
                  Plan& plan) {
  AttentionArgs& args = plan.args;
  const int64_t rows =
      Product({args.batch, args.query_heads, args.query_length});
  plan.marks = Place(Product({rows, sizeof(RowMark)}), plan);
  if (problem.wanted.weights && plan.method != Method::kGemm) {
    plan.row_max = Place(Product({rows, 4}), plan);
    plan.row_sum = Place(Product({rows, 4}), plan);
  }
  if (args.splits > 1) {
    plan.partials =
        Place(Product({args.splits, rows, PartialStride(args), 4}), plan);
  }
  if (plan.method == Method::kGemm) {
    const int64_t row_bytes = Product({args.key_length, 4});
    const int64_t most = std::max<int64_t>(1, options.score_bytes / row_bytes);
    const int64_t group_rows =
        args.query_heads / args.key.heads * args.query_length;
    plan.gemm_rows =
        most >= group_rows
            ? std::min(args.key.heads, most / group_rows) * group_rows
            : most;
    const int64_t band =  // multiply-adds
        Product({plan.gemm_rows, args.key_length,
                 int64_t{args.key.width} + args.value.width});
    plan.gemm_bands =
        std::max<int64_t>(1, static_cast<int64_t>(options.slice_work) / band);
    plan.scores = Place(Product({plan.gemm_rows, row_bytes}), plan);
    if (args.query.type != Element::kFloat32) {
      plan.probabilities = Place(plan.scores.bytes / 2, plan);
    }
    plan.pv = Place(Product({plan.gemm_rows, args.value.width, 4}), plan);
    plan.workspace = Place(kWorkspaceBytes, plan);
  }
}

void PlaceResults(const ValidatedProblem& problem, Plan& plan) {
  const AttentionArgs& args = plan.args;
  const int64_t rows =
      Product({args.batch, args.query_heads, args.query_length});
  if (!plan.in_place.output) {
    plan.output =
        Place(Product({rows, args.value.width, ElementBytes(args.output_type)}),
              plan);
  }
  if (problem.wanted.weights && !plan.in_place.weights) {
    plan.weights = Place(Product({rows, args.key_length, 4}), plan);
  }
  if (problem.wanted.lse && !plan.in_place.lse) {
    plan.lse = Place(Product({rows, 4}), plan);
  }
}

}  // namespace attention::cuda
