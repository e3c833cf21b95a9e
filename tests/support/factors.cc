#include "tests/support/factors.h"

#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/support/covering_array.h"

namespace attention::test {
namespace {

using S = ProblemSpec;

Factor Types() {
  return {"type",
          {{"FP32", [](S& s) { s.type = DataType::kFloat32; }},
           {"FP16", [](S& s) { s.type = DataType::kFloat16; }},
           {"BF16", [](S& s) { s.type = DataType::kBFloat16; }}}};
}

// Of key and value.
Factor KeyTypes() {
  return {"key type",
          {{"the query's", [](S&) {}},
           {"FP32", [](S& s) { s.key_type = DataType::kFloat32; }},
           {"FP16", [](S& s) { s.key_type = DataType::kFloat16; }},
           {"BF16", [](S& s) { s.key_type = DataType::kBFloat16; }},
           {"INT8", [](S& s) { s.key_type = DataType::kInt8; }},
           {"FP8", [](S& s) { s.key_type = DataType::kFloat8; }}}};
}

void SetHeads(S& s, int64_t batch, int64_t query_heads, int64_t kv_heads) {
  s.batch = batch;
  s.query_heads = query_heads;
  s.kv_heads = kv_heads;
}

Factor Ranks() {
  return {"rank",
          {{"four, one head", [](S& s) { SetHeads(s, 1, 1, 1); }},
           {"four, three heads", [](S& s) { SetHeads(s, 2, 3, 3); }},
           {"four, grouped query", [](S& s) { SetHeads(s, 2, 6, 2); }},
           {"four, multi query", [](S& s) { SetHeads(s, 3, 5, 1); }},
           {"three",
            [](S& s) {
              SetHeads(s, 3, 1, 1);
              s.rank = 3;
            }},
           {"two", [](S& s) {
              SetHeads(s, 1, 1, 1);
              s.rank = 2;
            }}}};
}

void SetAdditive(S& s, bool per_head, bool in_query_type, bool column) {
  s.scoring = ScoringKind::kAdditive;
  s.per_head_parameters = per_head;
  s.parameters_in_query_type = in_query_type;
  s.w_v_is_column = column;
}

Factor Scorings() {
  return {
      "scoring",
      {{"dot product", [](S&) {}},
       {"dot product, scale 0.3", [](S& s) { s.scale = 0.3; }},
       {"dot product, scale -0.7", [](S& s) { s.scale = -0.7; }},
       {"dot product, scale 0", [](S& s) { s.scale = 0; }},
       {"additive", [](S& s) { SetAdditive(s, false, false, false); }},
       {"additive, column w_v, query's type",
        [](S& s) { SetAdditive(s, false, true, true); }},
       {"additive, per head", [](S& s) { SetAdditive(s, true, false, false); }},
       {"additive, per head, column w_v",
        [](S& s) { SetAdditive(s, true, false, true); }},
       {"Gaussian", [](S& s) { s.scoring = ScoringKind::kGaussian; }},
       {"Gaussian, sigma 0.3",
        [](S& s) {
          s.scoring = ScoringKind::kGaussian;
          s.sigma = 0.3;
        }},
       {"bilinear", [](S& s) { s.scoring = ScoringKind::kBilinear; }},
       {"bilinear, per head, query's type, scale 0.5", [](S& s) {
          s.scoring = ScoringKind::kBilinear;
          s.per_head_parameters = true;
          s.parameters_in_query_type = true;
          s.scale = 0.5;
        }}}};
}

Factor Softcaps() {
  return {"softcap",
          {{"off", [](S&) {}},
           {"1.5", [](S& s) { s.softcap = 1.5; }},
           {"30", [](S& s) { s.softcap = 30; }}}};
}

void SetLengths(S& s, LengthsShape shape, DataType type) {
  s.valid_lens = shape;
  s.valid_lens_type = type;
}

Factor ValidLens() {
  return {
      "valid_lens",
      {{"none", [](S&) {}},
       {"(B) INT32",
        [](S& s) { SetLengths(s, LengthsShape::kPerBatch, DataType::kInt32); }},
       {"(B) INT64",
        [](S& s) { SetLengths(s, LengthsShape::kPerBatch, DataType::kInt64); }},
       {"(B, Lq) INT32",
        [](S& s) { SetLengths(s, LengthsShape::kPerRow, DataType::kInt32); }},
       {"(B, Lq) INT64",
        [](S& s) { SetLengths(s, LengthsShape::kPerRow, DataType::kInt64); }}}};
}

Factor AttendMasks() {
  return {"attend_mask",
          {{"none", [](S&) {}},
           {"full", [](S& s) { s.attend_mask = MaskExtents::kAll; }},
           {"broadcast", [](S& s) { s.attend_mask = MaskExtents::kSomeOnes; }},
           {"(Lq, Lk) UINT8", [](S& s) {
              s.attend_mask = MaskExtents::kFewerDimensions;
              s.attend_mask_type = DataType::kUint8;
            }}}};
}

Factor Biases() {
  return {"bias",
          {{"none", [](S&) {}},
           {"full", [](S& s) { s.bias = MaskExtents::kAll; }},
           {"broadcast, query's type",
            [](S& s) {
              s.bias = MaskExtents::kSomeOnes;
              s.bias_in_query_type = true;
            }},
           {"(Lq, Lk)", [](S& s) { s.bias = MaskExtents::kFewerDimensions; }},
           {"full, some -inf", [](S& s) {
              s.bias = MaskExtents::kAll;
              s.bias_masks = 0.3;
            }}}};
}

void Place(S& s, Causal causal, std::optional<int64_t> query_offset,
           std::optional<int64_t> key_offset) {
  s.causal = causal;
  s.query_offset = query_offset;
  s.key_offset = key_offset;
}

// They take the place of a common offset, and bottom-right takes none.
void PlaceEach(S& s, Causal causal, DataType type) {
  Place(s, causal, {}, 2);
  s.query_offsets_type = type;
}

Factor Positions() {
  return {
      "position",
      {{"not causal", [](S&) {}},
       {"not causal, offsets 3 and -2",
        [](S& s) { Place(s, Causal::kNone, 3, -2); }},
       {"top-left", [](S& s) { Place(s, Causal::kTopLeft, {}, {}); }},
       {"top-left, query_offset 7",
        [](S& s) { Place(s, Causal::kTopLeft, 7, {}); }},
       {"top-left, key_offset 5",
        [](S& s) { Place(s, Causal::kTopLeft, {}, 5); }},
       {"top-left, offsets -4 and -9",
        [](S& s) { Place(s, Causal::kTopLeft, -4, -9); }},
       {"bottom-right", [](S& s) { Place(s, Causal::kBottomRight, {}, {}); }},
       {"not causal, query_offsets INT32",
        [](S& s) { PlaceEach(s, Causal::kNone, DataType::kInt32); }},
       {"top-left, query_offsets INT64",
        [](S& s) { PlaceEach(s, Causal::kTopLeft, DataType::kInt64); }}}};
}

Factor Windows() {
  return {"window",
          {{"none", [](S&) {}},
           {"left 4", [](S& s) { s.window.left = 4; }},
           {"right 2", [](S& s) { s.window.right = 2; }},
           {"left 9, right 3",
            [](S& s) {
              s.window = {9, 3};
            }},
           {"left 0, right 0", [](S& s) {
              s.window = {0, 0};
            }}}};
}

Factor AlibiSlopes() {
  using P = PerHeadShape;
  return {"alibi_slopes",
          {{"none", [](S&) {}},
           {"(Hq)", [](S& s) { s.alibi_slopes = P::kPerHead; }},
           {"(B, Hq)", [](S& s) { s.alibi_slopes = P::kPerBatchAndHead; }}}};
}

Factor Sinks() {
  using P = PerHeadShape;
  return {"sinks",
          {{"none", [](S&) {}},
           {"(Hq)", [](S& s) { s.sinks = P::kPerHead; }},
           {"(B, Hq), some -inf", [](S& s) {
              s.sinks = P::kPerBatchAndHead;
              s.sinks_absent = 0.5;
            }}}};
}

constexpr uint64_t kDropoutSeed = 0x0123456789ABCDEF;

Factor Dropouts() {
  return {"dropout",
          {{"none", [](S&) {}},
           {"not training",
            [](S& s) {
              s.dropout = {false, 0.5, kDropoutSeed};
              s.wanted.weights_after_dropout = true;
            }},
           {"training",
            [](S& s) {
              s.dropout = {true, 0.4, kDropoutSeed};
            }},
           {"training, weights after", [](S& s) {
              s.dropout = {true, 0.25, kDropoutSeed};
              s.wanted.weights_after_dropout = true;
            }}}};
}

Factor EmptyRowsFactor() {
  return {"empty_rows",
          {{"zero", [](S& s) { s.empty_rows = EmptyRows::kZero; }},
           {"uniform", [](S& s) { s.empty_rows = EmptyRows::kUniform; }}}};
}

void Want(S& s, bool weights, bool lse) {
  s.wanted.weights = weights;
  s.wanted.lse = lse;
}

Factor ResultsFactor() {
  return {"results",
          {{"output", [](S& s) { Want(s, false, false); }},
           {"weights", [](S& s) { Want(s, true, false); }},
           {"lse", [](S& s) { Want(s, false, true); }},
           {"all", [](S& s) { Want(s, true, true); }}}};
}

constexpr int64_t kAllKeys = std::numeric_limits<int64_t>::max();

Factor MoreResults() {
  using Stage = ScoreStage;
  return {"more results",
          {{"none", [](S&) {}},
           {"top_k 1", [](S& s) { s.wanted.top_k = 1; }},
           {"key_weights", [](S& s) { s.wanted.key_weights = true; }},
           {"scaled scores", [](S& s) { s.wanted.scores = Stage::kScaled; }},
           {"capped scores", [](S& s) { s.wanted.scores = Stage::kCapped; }},
           {"masked scores", [](S& s) { s.wanted.scores = Stage::kMasked; }},
           {"top_k 5, key_weights",
            [](S& s) {
              s.wanted.top_k = 5;
              s.wanted.key_weights = true;
            }},
           {"top_k of all keys, key_weights, masked scores", [](S& s) {
              s.wanted.top_k = kAllKeys;
              s.wanted.key_weights = true;
              s.wanted.scores = Stage::kMasked;
            }}}};
}

Factor Layouts() {
  return {"layout",
          {{"row-major", [](S& s) { s.layout = Layout::kRowMajor; }},
           {"length first", [](S& s) { s.layout = Layout::kLengthFirst; }},
           {"misaligned", [](S& s) { s.layout = Layout::kMisaligned; }},
           {"reversed", [](S& s) { s.layout = Layout::kReversed; }}}};
}

Factor Numbers() {
  using M = Magnitudes;
  return {"numbers",
          {{"ordinary", [](S& s) { s.magnitudes = M::kOrdinary; }},
           {"far from origin", [](S& s) { s.magnitudes = M::kFarFromOrigin; }},
           {"huge", [](S& s) { s.magnitudes = M::kHuge; }},
           {"subnormal", [](S& s) { s.magnitudes = M::kSubnormal; }}}};
}

std::vector<Factor> AllFactors() {
  std::vector<Factor> factors = OptionFactors();
  factors.push_back(Extents<&S::query_length, 1, 7, 16, 33>("Lq"));
  factors.push_back(Extents<&S::key_length, 1, 9, 15, 31, 65, 129>("Lk"));
  factors.push_back(Extents<&S::width, 1, 8, 17, 31>("Dq"));
  factors.push_back(Extents<&S::value_width, 1, 7, 16, 63>("Dv"));
  factors.push_back(
      Extents<&S::keys_per_block, 0, 1, 16, 100>("keys per block"));
  return factors;
}

}  // namespace

std::vector<Factor> OptionFactors() {
  return {Types(),     KeyTypes(),        Ranks(),         Scorings(),
          Softcaps(),  ValidLens(),       AttendMasks(),   Biases(),
          Positions(), Windows(),         AlibiSlopes(),   Sinks(),
          Dropouts(),  EmptyRowsFactor(), ResultsFactor(), MoreResults(),
          Layouts(),   Numbers()};
}

const std::vector<Factor>& Factors() {
  static const auto* const kFactors = new std::vector<Factor>(AllFactors());
  return *kFactors;
}

const std::vector<std::vector<int>>& FactorRows() {
  static const auto* const kRows =
      new std::vector<std::vector<int>>(PairwiseRows(Factors()));
  return *kRows;
}

ProblemSpec SpecOf(const std::vector<int>& row) {
  return SpecOf(Factors(), row);
}

ProblemSpec SpecFor(const std::string& backend, ProblemSpec spec) {
  if (absl::StrContains(backend, "cuda")) spec.key_type.reset();
  return spec;
}

std::string Describe(const std::vector<int>& row) {
  return Describe(Factors(), row);
}

std::vector<std::vector<int>> PairwiseRows(const std::vector<Factor>& factors) {
  std::vector<int> counts;
  counts.reserve(factors.size());
  for (const Factor& factor : factors) {
    counts.push_back(static_cast<int>(factor.levels.size()));
  }
  return PairwiseCoveringArray(counts);
}

ProblemSpec SpecOf(const std::vector<Factor>& factors,
                   const std::vector<int>& row) {
  ProblemSpec spec;
  for (size_t f = 0; f < row.size(); ++f) {
    factors[f].levels[static_cast<size_t>(row[f])].apply(spec);
  }
  return spec;
}

std::string Describe(const std::vector<Factor>& factors,
                     const std::vector<int>& row) {
  std::string text;
  for (size_t f = 0; f < row.size(); ++f) {
    absl::StrAppend(&text, "\n  ", factors[f].name, ": ",
                    factors[f].levels[static_cast<size_t>(row[f])].name);
  }
  return text;
}

}  // namespace attention::test
