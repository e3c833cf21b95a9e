#include "core/cuda/plan.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <variant>

#include "absl/strings/str_cat.h"

namespace attention::cuda {
namespace {

constexpr int64_t kTooMany = int64_t{1} << 62;
constexpr int64_t kAlignment = 256;
// The most blocks of a launch: a grid's extent along x.
constexpr int64_t kMostBlocks = std::numeric_limits<int32_t>::max();
// Fewer keys than this are not worth a block of their own.
constexpr int64_t kLeastSplit = 4 * kSplitUnit;
// Blocks for each multiprocessor that keep it busy.
constexpr int64_t kBusyBlocks = 2;
// Launches of fewer blocks than this for each multiprocessor leave some idle
// at their ends.
constexpr int64_t kLeastLaunchBlocks = 8;
// Factors beyond this, or below its inverse, leave FP32 no room.
constexpr double kLargestFactor = 1e20;
// What a tanh costs in multiply-adds.
constexpr double kTanhWork = 16;

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

// The product, or kTooMany.
int64_t Product(std::initializer_list<int64_t> factors) {
  int64_t product = 1;
  for (const int64_t factor : factors) {
    if (factor == 0) return 0;
    if (product > kTooMany / factor) return kTooMany;
    product *= factor;
  }
  return product;
}

Buffer Place(int64_t bytes, Plan& plan) {
  if (bytes > kTooMany - kAlignment - plan.bytes) {
    plan.bytes = kTooMany;
    return {0, bytes};
  }
  const Buffer buffer{plan.bytes, bytes};
  plan.bytes = CeilDivide(plan.bytes + bytes, kAlignment) * kAlignment;
  return buffer;
}

bool Fits(double factor) {
  const double size = std::abs(factor);
  return size <= kLargestFactor && size >= 1 / kLargestFactor;
}

// False for scales, sigmas and softcaps that FP32 has no room for. A scale of
// 0 is among them: all of its rows need FP64 anyway.
bool FactorsFit(const AttentionArgs& args) {
  const double unit = args.softcap != 0 ? 1 / args.softcap : 1;
  return Fits(unit) && Fits(args.factor) && Fits(args.factor * unit);
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
                         const TensorView& matrix, int64_t to_heads,
                         int64_t to_width) {
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
  return {nullptr, Element::kFloat64, project.to_width, project.to_heads,
          project.from.length};
}

int64_t MatrixBytes(const ProjectArgs& project) {
  return Product({project.matrix_stride == 0 ? 1 : project.to_heads,
                  project.from.width, project.to_width,
                  ElementBytes(project.matrix_type)});
}

// Scoring, with what it makes of queries and keys.
void SetScoring(const ValidatedProblem& problem, Plan& plan) {
  AttentionArgs& args = plan.args;
  args.factor = problem.scale;
  const int64_t heads = problem.query_heads;
  if (const auto* gaussian = std::get_if<Gaussian>(&problem.scoring)) {
    args.score = Score::kGaussian;
    args.factor = -0.5 / (gaussian->sigma * gaussian->sigma);
  } else if (const auto* bilinear = std::get_if<Bilinear>(&problem.scoring)) {
    plan.project_query = ProjectionOf(problem, args.query, bilinear->m, heads,
                                      problem.key_width);
  } else if (const auto* additive = std::get_if<Additive>(&problem.scoring)) {
    args.score = Score::kAdditive;
    args.factor = 1;
    const int64_t hidden = problem.hidden_width;
    plan.project_query =
        ProjectionOf(problem, args.query, additive->w_q, heads, hidden);
    const bool shared = SharedByHeads(additive->w_k);
    plan.project_key = ProjectionOf(problem, args.key, additive->w_k,
                                    shared ? problem.kv_heads : heads, hidden);
    args.tanh_weight_stride = SharedByHeads(additive->w_v) ? 0 : hidden;
    plan.tanh_weights = Place(
        Product({args.tanh_weight_stride == 0 ? 1 : heads, hidden, 4}), plan);
  }
  if (plan.project_query) {
    plan.query_matrix = Place(MatrixBytes(*plan.project_query), plan);
    args.query = Projected(*plan.project_query);
    plan.projected_query = Place(BytesOf(args.query, problem.batch), plan);
  }
  if (plan.project_key) {
    plan.key_matrix = Place(MatrixBytes(*plan.project_key), plan);
    args.key = Projected(*plan.project_key);
    plan.projected_key = Place(BytesOf(args.key, problem.batch), plan);
  }
}

void SetMasks(const ValidatedProblem& problem, Plan& plan) {
  AttentionArgs& args = plan.args;
  if (problem.valid_lens || problem.causal != Causal::kNone ||
      problem.window.left || problem.window.right) {
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
    plan.bias = Place(Product({CompactOf(*problem.bias).elements,
                               ElementBytes(args.bias.type)}),
                      plan);
  }
  if (problem.dropout.p > 0) {
    args.dropout.active = 1;
    args.dropout.threshold =
        static_cast<uint32_t>(std::floor(std::ldexp(problem.dropout.p, 32)));
    args.dropout.seed = problem.dropout.seed;
    args.dropout.kept = 1 / (1 - problem.dropout.p);
  }
}

Plan PlanOfInputs(const ValidatedProblem& problem) {
  Plan plan;
  AttentionArgs& args = plan.args;
  args.batch = problem.batch;
  args.query_heads = problem.query_heads;
  args.query_length = problem.query_length;
  args.key_length = problem.key_length;
  args.softcap = problem.softcap.value_or(0);
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
  plan.query = Place(BytesOf(args.query, problem.batch), plan);
  plan.key = Place(BytesOf(args.key, problem.batch), plan);
  plan.value = Place(BytesOf(args.value, problem.batch), plan);
  return plan;
}

bool SomethingIsComputed(const ValidatedProblem& problem) {
  const WantedOutputs& wanted = problem.wanted;
  return problem.batch > 0 && problem.query_length > 0 &&
         problem.key_length > 0 &&
         (problem.value_width > 0 || wanted.weights || wanted.lse);
}

Method ChooseMethod(const ValidatedProblem& problem, const AttentionArgs& args,
                    const DeviceProperties& device,
                    const PlanOptions& options) {
  if (!FactorsFit(args)) return Method::kCareful;
  const bool plain_dot =
      args.score == Score::kDot && args.query.type != Element::kFloat64;
  if (plain_dot && problem.wanted.weights && problem.value_width > 0 &&
      Product({args.query_length, args.key_length}) >=
          options.least_product_elements) {
    return Method::kProducts;
  }
  // Weights are computed from the very scores whose maximum and sum are known.
  const bool mma =
      ServesMma(args) && !problem.wanted.weights &&
      MmaSharedBytes(MmaWidth(args)) <= device.shared_memory_per_block;
  return mma ? Method::kMma : Method::kTiles;
}

absl::string_view KernelName(const Plan& plan) {
  const bool split = plan.args.splits > 1;
  switch (plan.method) {
    case Method::kTiles:
      return split ? "fp32_tiles_split" : "fp32_tiles";
    case Method::kMma:
      if (plan.args.query.type == Element::kBFloat16) {
        return split ? "bf16_mma_split" : "bf16_mma";
      }
      return split ? "fp16_mma_split" : "fp16_mma";
    case Method::kProducts:
      return "cublas_products";
    case Method::kCareful:
      return "fp64_rows";
    case Method::kNothing:
      break;
  }
  return "none";
}

// Few rows: those of all heads that read the same keys share tiles, and blocks
// of their own read pieces of the keys.
void ChooseLanesAndSplits(const DeviceProperties& device,
                          const PlanOptions& options, AttentionArgs& args) {
  if (args.query_length >= options.few_rows) return;
  if (args.tanh_weight_stride == 0) {
    args.heads_per_lane =
        args.query_heads / std::max(args.key.heads, args.value.heads);
  }
  // Tiles of one batch entry, not of all: the splits decide the bits.
  const int64_t tiles = args.query_heads / args.heads_per_lane *
                        CeilDivide(RowsPerLane(args), kAttendRows);
  const int64_t wanted =
      CeilDivide(kBusyBlocks * device.multiprocessors, tiles);
  const int64_t most = CeilDivide(args.key_length, kLeastSplit);
  const int64_t splits = std::clamp<int64_t>(wanted, 1, most);
  args.keys_per_split =
      CeilDivide(CeilDivide(args.key_length, splits), kSplitUnit) * kSplitUnit;
  args.splits = CeilDivide(args.key_length, args.keys_per_split);
}

void PlaceScratch(const ValidatedProblem& problem, const PlanOptions& options,
                  Plan& plan) {
  AttentionArgs& args = plan.args;
  const int64_t rows =
      Product({args.batch, args.query_heads, args.query_length});
  if (plan.method != Method::kCareful) {
    plan.careful_rows = Place(rows, plan);
    if (problem.wanted.weights && plan.method != Method::kProducts) {
      plan.row_max = Place(Product({rows, 4}), plan);
      plan.row_sum = Place(Product({rows, 4}), plan);
    }
  }
  if (args.splits > 1) {
    plan.partials =
        Place(Product({args.splits, rows, PartialStride(args), 4}), plan);
  }
  if (plan.method == Method::kProducts) {
    const int64_t row_bytes = Product({args.key_length, 4});
    const int64_t most = std::max<int64_t>(1, options.score_bytes / row_bytes);
    const int64_t lane = args.query_heads / args.key.heads * args.query_length;
    plan.product_rows =
        most >= lane ? std::min(rows, most / lane * lane) : most;
    plan.scores = Place(Product({plan.product_rows, row_bytes}), plan);
    if (args.query.type != Element::kFloat32) {
      plan.probabilities = Place(plan.scores.bytes / 2, plan);
    }
    plan.product =
        Place(Product({plan.product_rows, args.value.width, 4}), plan);
  }
}

void PlaceResults(const ValidatedProblem& problem, Plan& plan) {
  const AttentionArgs& args = plan.args;
  const int64_t rows =
      Product({args.batch, args.query_heads, args.query_length});
  plan.output = Place(
      Product({rows, args.value.width, ElementBytes(args.output_type)}), plan);
  if (problem.wanted.weights) {
    plan.weights = Place(Product({rows, args.key_length, 4}), plan);
  }
  if (problem.wanted.lse) plan.lse = Place(Product({rows, 4}), plan);
}

// `work` is what a block has to do, in multiply-adds.
int64_t BlocksPerLaunch(double work, const DeviceProperties& device,
                        const PlanOptions& options) {
  const double processors = device.multiprocessors;
  const double blocks =
      processors * std::min(options.work_per_launch / std::max(work, 1.0), 1e9);
  const double least = processors * static_cast<double>(kLeastLaunchBlocks);
  const double at_least =
      options.work_per_launch >= PlanOptions().work_per_launch ? least : 1;
  return static_cast<int64_t>(
      std::clamp(blocks, at_least, static_cast<double>(kMostBlocks)));
}

void ChooseLaunches(const DeviceProperties& device, const PlanOptions& options,
                    Plan& plan) {
  const AttentionArgs& args = plan.args;
  const double score = static_cast<double>(args.key.width) *
                       (args.score == Score::kAdditive ? kTanhWork : 1);
  const double pair = score + static_cast<double>(args.value.width);
  const double keys = static_cast<double>(args.key_length);
  const double split_keys =
      args.splits > 1 ? static_cast<double>(args.keys_per_split) : keys;
  const auto blocks = [&](double work) {
    return BlocksPerLaunch(work, device, options);
  };
  plan.attend_blocks =
      blocks(static_cast<double>(kAttendRows) * split_keys * pair);
  plan.weights_blocks =
      blocks(static_cast<double>(kAttendRows * kAttendKeys) * score);
  plan.careful_blocks =
      blocks(static_cast<double>(kCarefulRows) * keys * pair * 4);
  const auto project = [&](const std::optional<ProjectArgs>& args_of) {
    if (!args_of) return int64_t{0};
    return blocks(static_cast<double>(kProjectTile * kProjectTile) *
                  args_of->from.width * 2);
  };
  plan.project_query_blocks = project(plan.project_query);
  plan.project_key_blocks = project(plan.project_key);
}

}  // namespace

Compact CompactOf(const TensorView& view) {
  Compact compact = {};
  compact.elements = 1;
  for (int n = 3; n >= 0; --n) {
    const auto index = static_cast<size_t>(n);
    const bool shared = view.strides[index] == 0 || view.shape[index] == 1;
    compact.extents[index] = shared ? 1 : view.shape[index];
    compact.strides[index] = shared ? 0 : compact.elements;
    compact.elements = Product({compact.elements, compact.extents[index]});
  }
  return compact;
}

absl::Status CheckSupport(const ValidatedProblem& problem,
                          const DeviceProperties& device) {
  const std::array<int64_t, 4> widths = {problem.query_width, problem.key_width,
                                         problem.value_width,
                                         problem.hidden_width};
  const int64_t widest = *std::max_element(widths.begin(), widths.end());
  if (widest > std::numeric_limits<int32_t>::max()) {
    return absl::UnimplementedError(
        absl::StrCat("rows of ", widest, " elements"));
  }
  // Where tensor cores' kernel needs more, it is not taken.
  const int64_t most_shared = std::max(
      {AttendSharedBytes(), CarefulSharedBytes(), ProjectSharedBytes()});
  if (most_shared > device.shared_memory_per_block) {
    return absl::UnimplementedError(absl::StrCat(
        device.name, " has ", device.shared_memory_per_block,
        " bytes of shared memory per block, the kernels need ", most_shared));
  }
  return absl::OkStatus();
}

Plan MakePlan(const ValidatedProblem& problem, const DeviceProperties& device,
              const PlanOptions& options) {
  if (!SomethingIsComputed(problem)) return {};
  Plan plan = PlanOfInputs(problem);
  SetScoring(problem, plan);
  SetMasks(problem, plan);
  plan.method = ChooseMethod(problem, plan.args, device, options);
  if (plan.method == Method::kTiles || plan.method == Method::kMma) {
    ChooseLanesAndSplits(device, options, plan.args);
  }
  PlaceScratch(problem, options, plan);
  PlaceResults(problem, plan);
  ChooseLaunches(device, options, plan);
  plan.kernel = KernelName(plan);
  return plan;
}

}  // namespace attention::cuda
