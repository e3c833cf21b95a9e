#include "tests/fuzz/more_options.h"

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/support/special_numbers.h"

namespace attention::test {
namespace {

constexpr double kDropouts[] = {0, 0.5, 1e-12, 0.999};
constexpr double kWindows[] = {0, 1, 30, 200, 0x1p40, 0x1p62};

// What no factor has, each a bit of one byte.
enum Bits : uint8_t {
  kNoQueries = 1,
  kOwnKeys = 2,
  kEmptyBlocks = 4,
  kChecked = 8,  // scales, sinks and masks, by the caller
  kInt64Starts = 16,
  kOtherMaskType = 32,
  kOtherBiasType = 64,
};

// Batch and heads that are not the factor's.
void SetExtents(ChoiceReader& reader, ProblemSpec& spec) {
  const int64_t batch = reader.Byte();
  const int64_t heads = reader.Byte();
  if (spec.rank > 2) reader.Override(batch, 6, spec.batch);
  if (spec.rank < 4 || heads == 0) return;
  spec.kv_heads = 1 + heads % 3;
  spec.query_heads = spec.kv_heads * (1 + heads / 3 % 8);
}

// Any results beside each other, of which factors have only some.
void SetResults(ChoiceReader& reader, ProblemSpec& spec) {
  WantedOutputs& wanted = spec.wanted;
  if (const int64_t bits = reader.Byte(); bits != 0) {
    wanted.weights = (bits & 1) != 0;
    wanted.lse = (bits & 2) != 0;
    wanted.key_weights = (bits & 4) != 0;
    wanted.scores.reset();
    if (const int64_t stage = bits / 8 % 4; stage > 0) {
      wanted.scores = static_cast<ScoreStage>(stage - 1);
    }
  }
  if (const int64_t top_k = reader.Byte(); top_k != 0) wanted.top_k = top_k;
  if (const int64_t bits = reader.Byte(); bits != 0) {
    spec.dropout.training = (bits & 1) != 0;
    wanted.weights_after_dropout = (bits & 2) != 0;
    spec.dropout.p = kDropouts[bits / 4 % 4];
    if (bits >= 128) spec.dropout.seed = ~uint64_t{0};
  }
}

void SetPositions(ChoiceReader& reader, ProblemSpec& spec) {
  const auto pick = [&reader](const auto& list,
                              std::optional<int64_t>& number) {
    const double picked = reader.Pick(list, kInfinity);
    if (picked != kInfinity) number = static_cast<int64_t>(picked);
  };
  pick(kOffsets, spec.query_offset);
  pick(kOffsets, spec.key_offset);
  if (spec.query_offsets_type) spec.query_offset.reset();
  if (spec.causal == Causal::kBottomRight) {
    spec.query_offset.reset();
    spec.key_offset.reset();
  }
  pick(kWindows, spec.window.left);
  pick(kWindows, spec.window.right);
}

void SetBits(int64_t bits, ProblemSpec& spec) {
  if ((bits & kNoQueries) != 0) spec.query_length = 0;
  if ((bits & kInt64Starts) != 0) spec.starts_type = DataType::kInt64;
  if ((bits & kOtherMaskType) != 0) {
    spec.attend_mask_type = spec.attend_mask_type == DataType::kBool
                                ? DataType::kUint8
                                : DataType::kBool;
  }
  if ((bits & kOtherBiasType) != 0) {
    spec.bias_in_query_type = !spec.bias_in_query_type;
  }
}

// A block of no keys in front of the first one, and another behind it.
void AddEmptyBlocks(AttentionProblem& problem) {
  KeyValueBlock none = problem.key_value[0];
  const int extent = none.key.rank() - 2;
  none.key = Slice(none.key, extent, 0, 0);
  none.value = Slice(none.value, extent, 0, 0);
  if (none.key_scale) {
    none.key_scale = Slice(*none.key_scale, extent, 0, 0);
    none.value_scale = Slice(*none.value_scale, extent, 0, 0);
  }
  problem.key_value.insert(problem.key_value.begin() + 1, none);
  problem.key_value.insert(problem.key_value.begin(), none);
}

// The caller has looked at what is there.
void SetChecked(int64_t bits, AttentionProblem& problem) {
  if ((bits & kChecked) == 0) return;
  problem.sinks_checked = true;
  problem.attend_mask_checked = true;
  for (KeyValueBlock& block : problem.key_value) block.scales_checked = true;
}

// Bits 0 to 5: the first two extents of query, keys and values, which are the
// batch's and the heads', have strides of 0. (Terms of one sum that are all the
// same round the same way, which the tolerances are not for.)
void RepeatExtents(int64_t bits, AttentionProblem& problem) {
  const auto repeat = [&problem](int64_t both, TensorView& view) {
    const bool packed = problem.query_starts.has_value();
    const int heads = packed ? 1 : view.rank() - 3;
    if ((both & 1) != 0 && heads > 0 && !packed) view.strides[0] = 0;
    if ((both & 2) != 0 && heads >= 0) view.strides[heads] = 0;
  };
  repeat(bits, problem.query);
  for (KeyValueBlock& block : problem.key_value) {
    repeat(bits / 4, block.key);
    repeat(bits / 16, block.value);
  }
}

}  // namespace

MoreOptions ReadMoreOptions(ChoiceReader& reader, ProblemSpec& spec) {
  SetExtents(reader, spec);
  SetResults(reader, spec);
  SetPositions(reader, spec);
  const MoreOptions more = {reader.Byte(), reader.Byte()};
  SetBits(more.bits, spec);
  return more;
}

void SetMoreOptions(const MoreOptions& more, AttentionProblem& problem) {
  RepeatExtents(more.repeated, problem);
  if ((more.bits & kEmptyBlocks) != 0 && !problem.query_starts) {
    AddEmptyBlocks(problem);
  }
  SetChecked(more.bits, problem);
}

bool HasOwnKeys(const MoreOptions& more, const AttentionProblem& problem) {
  return (more.bits & kOwnKeys) != 0 && problem.query.shape[0] > 0;
}

std::string DescribeMore(const ProblemSpec& spec, const MoreOptions& more) {
  const auto text = [](const std::optional<int64_t>& number) {
    return number ? absl::StrCat(*number) : "none";
  };
  const WantedOutputs& wanted = spec.wanted;
  return absl::StrCat(
      ", Hq: ", spec.query_heads, ", Hkv: ", spec.kv_heads,
      ", weights: ", wanted.weights, ", lse: ", wanted.lse,
      ", top_k: ", text(wanted.top_k), ", key_weights: ", wanted.key_weights,
      ", scores: ", wanted.scores ? static_cast<int>(*wanted.scores) : -1,
      ", training: ", spec.dropout.training, ", p: ", spec.dropout.p,
      ", after: ", wanted.weights_after_dropout,
      ", offsets: ", text(spec.query_offset), " and ", text(spec.key_offset),
      ", window: ", text(spec.window.left), " and ", text(spec.window.right),
      ", bits: ", more.bits, ", repeated: ", more.repeated);
}

}  // namespace attention::test
