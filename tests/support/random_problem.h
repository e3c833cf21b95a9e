#ifndef ATTENTION_TESTS_SUPPORT_RANDOM_PROBLEM_H_
#define ATTENTION_TESTS_SUPPORT_RANDOM_PROBLEM_H_

#include <cstdint>
#include <optional>

#include "core/problem.h"
#include "tests/support/owned_problem.h"

namespace attention::test {

/// What the numbers in query, key and value are like. Those of INT8 and FP8
/// are like that with their scales.
enum class Magnitudes : uint8_t {
  kOrdinary,       // normally distributed, variance 1
  kFarFromOrigin,  // the same around 100 in every direction
  kHuge,           // up to 1e15 in query and key, 1e30 in value (FP16: 20000)
  kSubnormal,      // below the smallest normal number of the type
};

enum class ScoringKind : uint8_t {
  kDotProduct,
  kAdditive,
  kGaussian,
  kBilinear
};

/// Which of a mask's extents are there.
enum class MaskExtents : uint8_t {
  kNone,             // no mask
  kAll,              // the full shape
  kSomeOnes,         // a random subset of extents is 1
  kFewerDimensions,  // (Lq, Lk)
};

enum class LengthsShape : uint8_t { kNone, kPerBatch, kPerRow };

/// Of alibi_slopes and sinks.
enum class PerHeadShape : uint8_t { kNone, kPerHead, kPerBatchAndHead };

inline constexpr WantedOutputs kNoWeights = {.weights = false, .lse = true};

/// What a random problem is like; its numbers follow from a seed.
// Fields are in the order in which a reader looks for them.
// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding)
struct ProblemSpec {
  int rank = 4;  // with 3, heads are 1; with 2, batch is 1 too
  int64_t batch = 2;
  int64_t query_heads = 1;
  int64_t kv_heads = 1;
  int64_t query_length = 5;
  int64_t key_length = 11;
  int64_t width = 8;  // Dq; Dk = Dq + 3 where the scoring allows it
  int64_t value_width = 6;
  int64_t hidden_width = 5;  // of additive scoring
  DataType type = DataType::kFloat32;
  std::optional<DataType> key_type = {};  // of key and value; absent: `type`
  Layout layout = Layout::kRowMajor;
  Magnitudes magnitudes = Magnitudes::kOrdinary;
  double spread = 1;    // standard deviation of kOrdinary and kFarFromOrigin
  double centre = 100;  // of kFarFromOrigin
  int64_t keys_per_block = 0;  // 0: one block

  ScoringKind scoring = ScoringKind::kDotProduct;
  std::optional<double> scale = {};  // dot product and bilinear
  double sigma = 1;
  bool per_head_parameters = false;
  bool parameters_in_query_type = false;
  bool w_v_is_column = false;

  std::optional<double> softcap = {};
  LengthsShape valid_lens = LengthsShape::kNone;
  DataType valid_lens_type = DataType::kInt32;
  MaskExtents attend_mask = MaskExtents::kNone;
  DataType attend_mask_type = DataType::kBool;
  MaskExtents bias = MaskExtents::kNone;
  bool bias_in_query_type = false;
  double bias_masks = 0;  // the share of -inf in the bias
  Causal causal = Causal::kNone;
  std::optional<int64_t> query_offset = {};
  std::optional<int64_t> key_offset = {};
  std::optional<DataType> query_offsets_type = {};  // absent: none
  DataType starts_type = DataType::kInt32;          // of packed batches
  Window window = {};
  PerHeadShape alibi_slopes = PerHeadShape::kNone;
  PerHeadShape sinks = PerHeadShape::kNone;
  double sinks_absent = 0;  // the share of -inf in the sinks
  Dropout dropout = {};
  EmptyRows empty_rows = EmptyRows::kZero;
  /// Of more keys than there are, top_k is of all, and of none it is not
  /// wanted.
  WantedOutputs wanted = {
      .weights = true, .weights_after_dropout = false, .lse = true};
};

OwnedProblem MakeProblem(const ProblemSpec& spec, uint64_t seed);

/// The shape that a mask or bias must broadcast to: (B, Hq, Lq, Lk), (B, Lq,
/// Lk) or (Lq, Lk).
Shape FullMaskShape(const ProblemSpec& spec);

}  // namespace attention::test

#endif  // ATTENTION_TESTS_SUPPORT_RANDOM_PROBLEM_H_
