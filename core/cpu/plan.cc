#include "core/cpu/plan.h"

#include <algorithm>
#include <cstdlib>

#include "core/cpu/kernels/bf16/int8_products.h"
#include "core/cpu/kernels/bf16/products.h"
#include "core/cpu/scoring_traits.h"

namespace attention::cpu {
namespace {

// Sizes that follow from memory, or were chosen by measurement: by
// attention-benchmark with one thread, the alternatives in turns, the least
// time of 7 rounds, on an EPYC (Zen 4) where no other machine is named.
// Differences below 5 % are noise there.

// Floats of a thread's scratch that rows, and that keys, may take while they
// are narrow enough; together well below 2 MiB. At D 256, half of either or
// twice as much makes no difference.
constexpr int64_t kRowFloats = int64_t{160} * 1024;
constexpr int64_t kKeyFloats = int64_t{256} * 1024;
// And weights that wait for their row's softmax: half is 3 % slower at 1,024
// and at 2,048 keys, twice as much between 8 % slower and 4 % faster.
constexpr int64_t kKeptFloats = int64_t{192} * 1024;
// More rows to a block mean less work per row on bringing keys into order: 132
// and 528 rows are 2 and 5 % slower at 1,024 keys, 264 win 1 % over 528 on an
// AVX-512 Xeon and have twice the pieces of work.
constexpr int64_t kMostRows = 264;
// Twice as many where keys and values are smaller: 2 % less time in FP16, on
// the Xeon as well; 2 to 6 % in BF16 and 6 % in INT8 on one with AMX, where
// products take less of the time.
constexpr int64_t kMostRowsOfSmallKeys = 528;
// Smaller blocks make more pieces of work, each of which packs the keys anew;
// from 48 to 192 rows one thread sees no difference at 384 rows of one head.
constexpr int64_t kFewestRows = 96;
// For the same reason, unless they are so wide that so many of them take more
// memory than their results.
constexpr int64_t kFewestWideRows = 48;
constexpr int64_t kWideRowFloats = int64_t{1024} * 1024;
// What a score sums over at a time: a tile of such keys stays in the
// second-level cache. From 256 to 1,024 there is no difference at D 2,048, but
// in memory.
constexpr int64_t kMostScorePart = 512;
// Blocks that are enough to keep a machine busy: a guess, for machines of up to
// that many processors.
constexpr int64_t kEnoughBlocks = 32;
// Queries that read keys in less time than packing would take: 4 of them over
// 4,096 keys take 1.7 times as long in tiles, 8 as long as here. With four
// heads to a kv group tiles win already at 4 (by 16 %).
constexpr int64_t kMostDecodeQueries = 4;
// Rows of a kv group that AMX decodes in less time than FP32 does: 4 of them
// take 0.8 times as long over BF16 in the second-level cache and 0.7 times over
// FP8, on an Emerald Rapids.
constexpr int64_t kFewestBf16DecodeRows = 4;
// And those of which it multiplies INT8 by digits, four products for one of
// BF16, in less time than as BF16.
constexpr int64_t kMostDigitRows = 8;
// Rows of a kv group for which it pays to make BF16 of bytes: one, whose
// weights are wanted, takes 1.2 times as long as in FP32, four of INT8 0.96
// times and of FP8 0.98, on a Xeon with AMX.
constexpr int64_t kFewestByteRows = 4;
// Rows of a kv group for which it pays to split FP16 into terms: 48 of them
// take up to 1.15 times as long as in FP32, 64 less, on an Emerald Rapids.
constexpr int64_t kFewestFp16Rows = 64;
// Rows of a kv group whose state fits into scratch beside the keys.
constexpr int64_t kMostDecodeRows = 256;
// Keys of a split. For 8 entries of 8 kv groups and 4,096 keys, splits of 1,024
// cost between nothing and a tenth. An entry of one or two groups keeps no
// processors busy without them, one of more takes larger ones.
constexpr int64_t kFewestKeysOfSplit = 1024;
constexpr int64_t kManyKeysOfSplit = 4096;
constexpr int64_t kMostSplits = 32;
// Keys, and values, of a tile that wait for their turn in the first-level
// cache while the others are read; 8 and 32 KiB are as fast.
constexpr int64_t kDecodeTileBytes = int64_t{16} * 1024;
// On AMX, which is fast enough to notice what a tile costs besides: half as
// much takes 1.1 to 1.5 times as long, twice as much is as fast.
constexpr int64_t kBf16DecodeTileBytes = int64_t{64} * 1024;
// Of the queries of kv groups that take turns: 32 rows of width 128. The states
// of so many take 0.3 MiB beside what one group takes. On a Xeon with AMX, with
// a token's heads side by side, eight groups of four rows take 0.7 of the time
// of one after the other in FP32 and FP16, 0.9 in BF16 and INT8, half as many
// groups 0.8 and 0.9; 32 groups of one row 0.75, 8 of them 0.9.
constexpr int64_t kElementsInTurn = int64_t{32} * 128;
constexpr int64_t kMostGroupsInTurn = 32;
constexpr int64_t kNarrowestInTurn = 64;  // narrower rows take as much memory
// Of a head's keys in a page with which groups take turns: 0.8 to 0.9 of the
// time for 2 to 8 KiB, 0.9 to 1 for 16 to 64, 1.05 for 128. In one piece FP32
// takes 1.2 times as long in turns.
constexpr int64_t kShortRunBytes = int64_t{64} * 1024;
// Wider ones, all terms together, would take more memory than they are worth.
constexpr int64_t kWidestBf16 = 32768;

// Chunks of a head's rows that sum weights apart from each other: as many
// threads as one head keeps busy, and as many sums per key in memory.
constexpr int64_t kMostChunks = 16;

// Where weights are summed over rows: sizes follow from the head's rows alone,
// so that a head gets the same bits in any batch.
void ChooseChunks(int64_t most, int64_t micro_rows, Plan& plan) {
  const int64_t chunks = std::clamp<int64_t>(
      CeilDivide(plan.rows_per_group, kFewestRows), 1, kMostChunks);
  const int64_t rows = CeilDivide(plan.rows_per_group, chunks);
  plan.blocks_per_chunk = CeilDivide(rows, most);
  plan.row_block =
      std::min(plan.rows_per_group,
               RoundUp(CeilDivide(rows, plan.blocks_per_chunk), micro_rows));
}

// The kv groups among which threads find enough blocks: those of all entries,
// or with window_left those of one. Tiles then begin at the first key that a
// block attends, and an entry's bits must not follow from how many others are
// beside it. That costs batches of few heads up to a tenth over BF16; tiles at
// fixed places cost all of them as much, in windows of 256.
int64_t GroupsToCut(const ValidatedProblem& problem, const Plan& plan) {
  return problem.window.left ? plan.kv_groups / problem.batch : plan.kv_groups;
}

void ChooseRowBlock(bool small_keys, bool sums, int64_t groups,
                    int64_t floats_per_row, int64_t micro_rows, Plan& plan) {
  const int64_t fewest =
      std::clamp(kWideRowFloats / floats_per_row, micro_rows, kFewestWideRows);
  int64_t most = std::clamp(kRowFloats / floats_per_row, fewest,
                            small_keys ? kMostRowsOfSmallKeys : kMostRows);
  if (plan.keeps_weights) {
    most = std::min(most,
                    kKeptFloats / plan.kept_stride / micro_rows * micro_rows);
  }
  if (sums) return ChooseChunks(most, micro_rows, plan);
  int64_t blocks = CeilDivide(plan.rows_per_group, most);
  while (groups * blocks < kEnoughBlocks &&
         CeilDivide(plan.rows_per_group, blocks + 1) >= kFewestRows) {
    ++blocks;
  }
  plan.row_block =
      std::min(plan.rows_per_group,
               RoundUp(CeilDivide(plan.rows_per_group, blocks), micro_rows));
}

// A block's weights stay in the second-level cache until they are normalised,
// if some rows fit, and rows are not unusual.
void ChooseWeights(const ValidatedProblem& problem, int64_t row_floats,
                   int64_t micro_rows, Plan& plan) {
  const WantedOutputs& wanted = problem.wanted;
  if (!wanted.weights || wanted.top_k || wanted.key_weights) return;
  plan.kept_tiles = CeilDivide(problem.key_length, plan.key_tile);
  // However a mask shifts the tiles, the others have no more keys than this
  // leaves.
  const int64_t last_tile = (problem.key_length - 1) % plan.key_tile + 1;
  plan.kept_stride = problem.key_length - last_tile + plan.kept_tiles;
  plan.keeps_weights = plan.kept_stride * micro_rows <= kKeptFloats &&
                       row_floats * micro_rows <= kKeptFloats / 2 &&
                       plan.kept_tiles > 0 && plan.kept_tiles <= 256;
}

// Whether other heads' keys lie between those of a head: where a token's heads
// lie side by side, as in packed batches, and where pages are small. Pages are
// taken to be alike.
bool HeadsAreInterleaved(const ValidatedProblem& problem) {
  const auto pages = static_cast<int64_t>(problem.key_value.size());
  if (pages == 0) return false;
  const absl::Span<const int64_t> strides = problem.key_value[0].key.strides;
  if (std::abs(strides[1]) < std::abs(strides[2])) return true;
  const int64_t row_bytes = ByteSize(problem.key_type) * problem.key_width;
  return pages > 1 && problem.key_length / pages * row_bytes <= kShortRunBytes;
}

// Keys of one tile are read group after group in any case. What projects
// queries takes too much memory for each group.
int64_t GroupsInTurn(const ValidatedProblem& problem, const Plan& plan) {
  if (problem.key_length <= plan.key_tile || !HeadsAreInterleaved(problem) ||
      !std::holds_alternative<ScaledDotProduct>(problem.scoring)) {
    return 1;
  }
  const int64_t rows = plan.int8_digits
                           ? RoundUp(plan.rows_per_group, kDigitRows)
                           : plan.rows_per_group;
  const int64_t elements =
      rows *
      std::max({problem.key_width, problem.value_width, kNarrowestInTurn});
  const int64_t groups = problem.query_heads / plan.heads_per_group;
  return std::clamp<int64_t>(kElementsInTurn / elements, 1,
                             std::min(groups, kMostGroupsInTurn));
}

// All rows of a kv group are one block; keys are split, whatever else is in the
// batch. An entry of many kv groups has pieces enough for larger ones.
void ChooseSplits(const ValidatedProblem& problem, int64_t panel, Plan& plan) {
  const int64_t tile_bytes = plan.bf16_terms > 0 || plan.int8_digits
                                 ? kBf16DecodeTileBytes
                                 : kDecodeTileBytes;
  const int64_t row_bytes = ByteSize(problem.key_type) *
                            std::max(problem.key_width, problem.value_width);
  const int64_t groups = problem.query_heads / plan.heads_per_group;
  plan.decode = true;
  plan.key_tile =
      std::clamp(tile_bytes / row_bytes / panel * panel, panel, kMaxTileKeys);
  plan.row_block = plan.rows_per_group;
  plan.blocks_per_group = plan.chunks_per_group = 1;
  plan.keys_of_split = std::clamp(kFewestKeysOfSplit * groups / 2,
                                  kFewestKeysOfSplit, kManyKeysOfSplit);
  plan.splits = std::clamp<int64_t>(problem.key_length / plan.keys_of_split, 1,
                                    kMostSplits);
  plan.groups_in_turn = GroupsInTurn(problem, plan);
}

// A second sweep has to see the very same scores.
bool Decodes(const ValidatedProblem& problem, const ScoringTraits& traits,
             const Plan& plan) {
  return traits.scores_keys_in_place && problem.wanted.OfOneSweep() &&
         problem.query_length <= kMostDecodeQueries &&
         plan.rows_per_group <= kMostDecodeRows;
}

// The other scoring functions have projections or differences to form first,
// whose roundings to BF16 the tolerances have no room for.
int64_t Bf16TermsOf(const ValidatedProblem& problem, const Kernels& kernels,
                    int64_t rows_per_group) {
  if (kernels.bf16 == nullptr ||
      !std::holds_alternative<ScaledDotProduct>(problem.scoring)) {
    return 0;
  }
  // Elements of one byte are numbers of BF16.
  const bool bytes = IsScaledType(problem.key_type) &&
                     problem.query.type == DataType::kBFloat16 &&
                     rows_per_group >= kFewestByteRows;
  if (problem.key_type != problem.query.type && !bytes) return 0;
  const bool splits_fp16 =
      kernels.bf16->fp16_name != nullptr && rows_per_group >= kFewestFp16Rows;
  const int64_t terms = problem.query.type == DataType::kBFloat16 ? 1
                        : problem.key_type == DataType::kFloat16 && splits_fp16
                            ? 2
                            : 0;
  const int64_t width = std::max(problem.key_width, problem.value_width);
  return terms * width <= kWidestBf16 ? terms : 0;
}

// Elements of 16 bits are digits wherever they are not too far apart.
bool MultipliesDigits(const ValidatedProblem& problem, const Kernels& kernels,
                      int64_t rows_per_group) {
  const int64_t width = std::max(problem.key_width, problem.value_width);
  return kernels.bf16 != nullptr && kernels.bf16->int8 != nullptr &&
         std::holds_alternative<ScaledDotProduct>(problem.scoring) &&
         problem.key_type == DataType::kInt8 &&
         problem.query.type != DataType::kFloat32 &&
         rows_per_group <= kMostDigitRows && width <= kWidestBf16;
}

int64_t PaddedForBf16(const ValidatedProblem& problem, const Kernels& kernels) {
  return RoundUp(problem.value_width, std::max(kernels.lanes, kBf16Depth));
}

// Keys of a split, whole tiles.
int64_t KeysPerSplit(const Plan& plan, const KeyRange& attended) {
  const int64_t keys = std::max<int64_t>(1, attended.end - attended.begin);
  const int64_t splits =
      std::clamp<int64_t>(keys / plan.keys_of_split, 1, plan.splits);
  return RoundUp(CeilDivide(keys, splits), plan.key_tile);
}

}  // namespace

int64_t Plan::SplitsOf(const KeyRange& attended) const {
  if (splits == 1) return 1;
  const int64_t keys = std::max<int64_t>(1, attended.end - attended.begin);
  return CeilDivide(keys, KeysPerSplit(*this, attended));
}

KeyRange Plan::SplitKeys(const KeyRange& attended, int64_t split) const {
  const int64_t keys = KeysPerSplit(*this, attended);
  const int64_t begin = attended.begin + split * keys;
  return {begin, std::min(attended.end, begin + keys)};
}

Plan MakePlan(const ValidatedProblem& problem, const Kernels& kernels) {
  const ScoringTraits traits = TraitsOf(problem);
  Plan plan;
  plan.heads_per_group = problem.kv_heads > 0 &&
                                 traits.heads_share_parameters &&
                                 !problem.wanted.key_weights
                             ? problem.query_heads / problem.kv_heads
                             : 1;
  plan.kv_groups = problem.batch * (problem.query_heads / plan.heads_per_group);
  plan.rows_per_group = plan.heads_per_group * problem.query_length;
  plan.padded_value_width = RoundUp(problem.value_width, kernels.lanes);
  plan.score_width = traits.score_width;
  plan.score_part = std::min(plan.score_width, kMostScorePart);
  // Without elements no byte bounds the other extents.
  if (plan.kv_groups == 0 || plan.rows_per_group == 0) return plan;

  const int64_t panel = 2 * kernels.lanes;
  const bool decodes = Decodes(problem, traits, plan);
  plan.bf16_terms = Bf16TermsOf(problem, kernels, plan.rows_per_group);
  if (decodes) {
    plan.int8_digits = MultipliesDigits(problem, kernels, plan.rows_per_group);
    const bool bf16 = plan.bf16_terms == 1 && !plan.int8_digits &&
                      kernels.bf16->scores_in_place != nullptr &&
                      plan.rows_per_group >= kFewestBf16DecodeRows;
    plan.bf16_terms = bf16 ? 1 : 0;
    if (bf16) plan.padded_value_width = PaddedForBf16(problem, kernels);
    ChooseSplits(problem, bf16 || plan.int8_digits ? kBf16Panel : panel, plan);
    return plan;
  }
  // Of a key: widened, packed, and its value.
  const int64_t key_floats =
      3 * RoundUp(plan.score_part, panel) + plan.padded_value_width;
  plan.key_tile =
      std::clamp(kKeyFloats / key_floats / panel * panel, panel, kMaxTileKeys);
  const bool bf16 = plan.bf16_terms > 0;
  if (bf16) plan.padded_value_width = PaddedForBf16(problem, kernels);
  // Blocks are whole micro-tiles: which rows share one shows in their last
  // bits, and must not follow from how long blocks are in a larger batch.
  const int64_t micro_rows = bf16 ? kMaxMicroRows : kernels.micro_rows;
  const int64_t row_floats =
      3 * RoundUp(plan.score_part, kernels.lanes) + plan.padded_value_width;
  ChooseWeights(problem, row_floats, micro_rows, plan);
  // Of one byte: as BF16, whose rows take half the memory.
  const bool bytes = bf16 && IsScaledType(problem.key_type);
  ChooseRowBlock(problem.key_type != DataType::kFloat32,
                 problem.wanted.key_weights, GroupsToCut(problem, plan),
                 bytes ? row_floats / 2 : row_floats, micro_rows, plan);
  plan.blocks_per_group = CeilDivide(plan.rows_per_group, plan.row_block);
  plan.chunks_per_group =
      CeilDivide(plan.blocks_per_group, plan.blocks_per_chunk);
  return plan;
}

}  // namespace attention::cpu
