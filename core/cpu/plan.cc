#include "core/cpu/plan.h"

#include <algorithm>
#include <cmath>
#include <variant>

#include "core/cpu/bf16_products.h"

namespace attention::cpu {
namespace {

// Floats of a thread's scratch that rows, and that keys, may take; together
// with parameters well below 2 MiB.
constexpr int64_t kRowFloats = int64_t{160} * 1024;
constexpr int64_t kKeyFloats = int64_t{160} * 1024;
constexpr int64_t kParameterFloats = int64_t{128} * 1024;
constexpr int64_t kKeptFloats = int64_t{96} * 1024;
// More rows to a block mean less work per row on bringing keys into order.
constexpr int64_t kMostRows = 264;
constexpr int64_t kFewestRows = 96;
// Pieces of work that are enough to keep a machine busy.
constexpr int64_t kEnoughBlocks = 32;
// Queries that read keys in less time than packing would take. Whatever the
// number of heads that share the keys: a head gets the same bits alone.
constexpr int64_t kMostDecodeQueries = 4;
// Rows of a lane whose state fits into scratch beside the keys.
constexpr int64_t kMostDecodeRows = 256;
constexpr int64_t kFewestKeysOfSplit = 1024;
// Keys, and values, of a tile that wait for their turn in the first-level
// cache while the others are read.
constexpr int64_t kDecodeTileBytes = int64_t{16} * 1024;
// Up to here differences cost less than they save in accuracy.
constexpr int64_t kDirectWidth = 8;
// Factors of scores, and what is 1 divided by them, up to which they leave
// queries and norms within FP32's range.
constexpr double kLargestFactor = 1e20;

int64_t Ceiling(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t RoundUp(int64_t a, int64_t b) { return Ceiling(a, b) * b; }

Method ChooseMethod(const ValidatedProblem& problem) {
  if (std::holds_alternative<Additive>(problem.scoring)) {
    return Method::kAdditive;
  }
  if (std::holds_alternative<Gaussian>(problem.scoring)) {
    return problem.key_width <= kDirectWidth ? Method::kGaussianDirect
                                             : Method::kGaussianDot;
  }
  return Method::kDot;
}

// True where all query heads of a group see the same keys; a W_k per head makes
// other keys of them.
bool HeadsShareKeys(const ValidatedProblem& problem) {
  const auto* additive = std::get_if<Additive>(&problem.scoring);
  return additive == nullptr ||
         (additive->w_k.strides[0] == 0 && additive->w_q.strides[0] == 0 &&
          additive->w_v.strides[0] == 0);
}

bool SharesProjection(const ValidatedProblem& problem) {
  const auto* bilinear = std::get_if<Bilinear>(&problem.scoring);
  return bilinear == nullptr || bilinear->m.strides[0] == 0;
}

// The other scoring functions have projections or differences to form first,
// whose roundings to BF16 the tolerances have no room for.
bool UsesBf16(const ValidatedProblem& problem, const Kernels& kernels) {
  return kernels.bf16 != nullptr && problem.query.type == DataType::kBFloat16 &&
         std::holds_alternative<ScaledDotProduct>(problem.scoring);
}

int64_t ChooseRowBlock(const Plan& plan, int64_t floats_per_row,
                       int64_t group_rows) {
  int64_t most = std::clamp(kRowFloats / floats_per_row, group_rows, kMostRows);
  if (plan.keeps_weights) {
    most = std::min(most,
                    kKeptFloats / plan.kept_stride / group_rows * group_rows);
  }
  int64_t blocks = Ceiling(plan.rows_per_lane, most);
  while (plan.lanes * blocks < kEnoughBlocks &&
         Ceiling(plan.rows_per_lane, blocks + 1) >= kFewestRows) {
    ++blocks;
  }
  return std::min(plan.rows_per_lane,
                  RoundUp(Ceiling(plan.rows_per_lane, blocks), group_rows));
}

// A block's weights stay in the second-level cache until they are normalised,
// if a few groups of rows fit, and neither rows nor blocks of keys are unusual.
void ChooseWeights(const ValidatedProblem& problem, int64_t row_floats,
                   int64_t group_rows, Plan& plan) {
  if (!problem.wanted.weights) return;
  for (const auto& block : problem.key_value) {
    plan.kept_tiles += Ceiling(block.key_count, plan.key_tile);
  }
  plan.kept_stride = problem.key_length + kMaxLanes + plan.kept_tiles;
  plan.keeps_weights = plan.kept_stride * group_rows <= kKeptFloats &&
                       row_floats * group_rows <= kKeptFloats / 2 &&
                       plan.kept_tiles <= 256;
}

// All rows of a lane are one block; keys are split where that keeps more
// processors busy.
void ChooseSplits(int64_t keys, int64_t row_bytes, int64_t panel, Plan& plan) {
  plan.decode = true;
  plan.key_tile = std::clamp(kDecodeTileBytes / row_bytes / panel * panel,
                             panel, plan.key_tile);
  plan.row_block = plan.rows_per_lane;
  plan.blocks_per_lane = 1;
  const int64_t pieces = std::clamp<int64_t>(
      keys / kFewestKeysOfSplit, 1,
      Ceiling(kEnoughBlocks, std::max<int64_t>(1, plan.lanes)));
  plan.keys_per_split =
      RoundUp(Ceiling(std::max<int64_t>(1, keys), pieces), plan.key_tile);
  plan.splits = std::max<int64_t>(1, Ceiling(keys, plan.keys_per_split));
}

}  // namespace

bool FactorsFit(const ValidatedProblem& problem) {
  const auto fits = [](double factor) {
    const double size = std::abs(factor);
    return size == 0 || (size <= kLargestFactor && size >= 1 / kLargestFactor);
  };
  double factor = problem.scale;
  if (const auto* gaussian = std::get_if<Gaussian>(&problem.scoring)) {
    factor = 1 / (gaussian->sigma * gaussian->sigma);
  }
  const double unit = problem.softcap ? 1 / *problem.softcap : 1;
  return fits(unit) && fits(factor) && fits(factor * unit);
}

Plan MakePlan(const ValidatedProblem& problem, const Kernels& kernels) {
  Plan plan;
  plan.method = ChooseMethod(problem);
  const bool share = HeadsShareKeys(problem) && SharesProjection(problem);
  plan.heads_per_lane = share && problem.kv_heads > 0
                            ? problem.query_heads / problem.kv_heads
                            : 1;
  plan.lanes = problem.batch * (problem.query_heads / plan.heads_per_lane);
  plan.rows_per_lane = plan.heads_per_lane * problem.query_length;
  plan.padded_value_width = RoundUp(problem.value_width, kernels.lanes);
  plan.padded_hidden_width = RoundUp(problem.hidden_width, 2 * kernels.lanes);
  const bool additive = plan.method == Method::kAdditive;
  plan.score_width = additive ? problem.hidden_width : problem.key_width;

  const int64_t query_width = RoundUp(problem.query_width, kernels.lanes);
  const int64_t key_width = RoundUp(problem.key_width, 2 * kernels.lanes);
  const int64_t projected =
      additive ? 8 * plan.padded_hidden_width : 2 * key_width;
  const int64_t parameters =
      additive
          ? (problem.query_width + problem.key_width) * plan.padded_hidden_width
      : std::holds_alternative<Bilinear>(problem.scoring)
          ? problem.query_width * key_width
          : 0;
  const int64_t row_floats =
      query_width + projected + plan.padded_value_width + 16;
  const int64_t key_floats = key_width + projected + plan.padded_value_width;
  const int64_t panel = 2 * kernels.lanes;
  plan.fits = FactorsFit(problem) && parameters <= kParameterFloats &&
              row_floats * kernels.group_rows <= kRowFloats &&
              key_floats * panel <= kKeyFloats;
  if (!plan.fits) return plan;
  plan.key_tile =
      std::min(kMaxTileKeys, kKeyFloats / key_floats / panel * panel);
  if (plan.rows_per_lane == 0) return plan;
  plan.keys_per_split = std::max<int64_t>(1, problem.key_length);
  // The second sweep for weights has to see the very same scores.
  if (plan.method == Method::kDot && !problem.wanted.weights &&
      problem.query_length <= kMostDecodeQueries &&
      plan.rows_per_lane <=
          std::min(kMostDecodeRows, kRowFloats / row_floats)) {
    ChooseSplits(problem.key_length,
                 ByteSize(problem.query.type) *
                     std::max(problem.key_width, problem.value_width),
                 panel, plan);
    return plan;
  }
  plan.bf16 =
      UsesBf16(problem, kernels) && row_floats * kBf16RowTile <= kRowFloats;
  const int64_t group_rows = plan.bf16 ? kBf16RowTile : kernels.group_rows;
  ChooseWeights(problem, row_floats, group_rows, plan);
  plan.row_block = ChooseRowBlock(plan, row_floats, group_rows);
  plan.blocks_per_lane = Ceiling(plan.rows_per_lane, plan.row_block);
  return plan;
}

}  // namespace attention::cpu
