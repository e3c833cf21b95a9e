#ifndef ATTENTION_CORE_PROBLEM_H_
#define ATTENTION_CORE_PROBLEM_H_

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "core/tensor_view.h"

/// What can be asked of the engine. Extents: B batch entries, Hq query heads,
/// Hkv key/value heads, Lq queries, Lk keys, Dq, Dk, Dv widths, h the hidden
/// width of additive scoring. query, key and value share a rank: (B, H, L, D),
/// (B, L, D) for one head, (L, D) for one head and one batch entry; or, packed,
/// (T, Hq, Dq), (S, Hkv, Dk) and (S, Hkv, Dv): T queries and S keys of all
/// entries, one entry after the other.
///
/// These are plain values: Validate() (core/validate.h) is where they are
/// checked, and where each rule is.
namespace attention {

/// score = scale * q.k (Vaswani et al. 2017). Needs Dq = Dk.
struct ScaledDotProduct {
  std::optional<double> scale;  // up to 2e38; absent: 1 / sqrt(Dq)
};

/// score = w_v . tanh(q W_q + k W_k) (Bahdanau et al. 2015), without bias
/// terms. Parameters are FP32 or of the query's type and may have a leading
/// extent Hq.
struct Additive {
  TensorView w_q;  // (Dq, h)
  TensorView w_k;  // (Dk, h)
  TensorView w_v;  // (h) or (h, 1)
};

/// score = -|q - k|^2 / (2 sigma^2) (Nadaraya-Watson regression). Needs Dq =
/// Dk.
struct Gaussian {
  double sigma = 1.0;  // finite, 1e-19 or more
};

/// score = scale * q M k (Luong et al. 2015, "general").
struct Bilinear {
  TensorView m;  // (Dq, Dk), FP32 or of the query's type; may lead with Hq
  double scale = 1.0;  // up to 2e38 in magnitude
};

using Scoring = std::variant<ScaledDotProduct, Additive, Gaussian, Bilinear>;

/// Row i stands at position p, key j at j + key_offset; key positions <= p take
/// part.
enum class Causal : uint8_t {
  kNone,         // every key; p = i + query_offset, for window and ALiBi
  kTopLeft,      // p = i + query_offset
  kBottomRight,  // p = i + Lk - Lq
};

/// Key positions from p - left to p + right take part; absent is unbounded.
struct Window {
  std::optional<int64_t> left;   // >= 0
  std::optional<int64_t> right;  // >= 0
};

/// Which keys take part in which rows: all given masks hold at once.
struct Masks {
  /// INT32 or INT64, (B) or (B, Lq), each 0 <= length <= Lk.
  std::optional<TensorView> valid_lens;
  /// BOOL or UINT8, 1 = takes part, 0 = does not; broadcastable to (B, Hq, Lq,
  /// Lk), (B, Lq, Lk) or (Lq, Lk), after the query's rank.
  std::optional<TensorView> attend_mask;
  /// FP32 or the query's type, added to the score; -inf masks. Broadcasts
  /// alike.
  std::optional<TensorView> bias;
  Causal causal = Causal::kNone;
  /// Not with kBottomRight. Default 0. Magnitude at most 2^62.
  std::optional<int64_t> query_offset;
  std::optional<int64_t> key_offset;
  /// A query_offset for every batch entry, in its place: INT32 or INT64, (B).
  std::optional<TensorView> query_offsets;
  Window window;
};

/// Dropout of weights after the softmax (core/philox.h says which ones).
/// Applied only where training is true; checked in any case.
struct Dropout {
  bool training = false;
  double p = 0.0;  // 0 <= p < 1
  uint64_t seed = 0;
};

/// What a row gives in which no key takes part and that has no sink; its lse is
/// -inf either way.
enum class EmptyRows : uint8_t {
  kZero,     // output 0, weights 0
  kUniform,  // weights 1 / Lk, output the mean of all values
};

/// A run of consecutive keys with their values: (B, Hkv, n, Dk), (B, Hkv, n,
/// Dv). All keys and values of a problem share one type, which need not be the
/// query's: FP32, FP16, BF16, INT8 or FP8.
struct KeyValueBlock {
  TensorView key;
  TensorView value;
  /// Of INT8 and FP8, and only of those, what a row's elements are to be
  /// multiplied by, in FP32: FP32, (B, Hkv, n), or without the extents that key
  /// and value lack; (S, Hkv) in a packed batch. Finite, 0 or more. -128 of
  /// INT8 and NaN of FP8 are numbers like others.
  std::optional<TensorView> key_scale = {};
  std::optional<TensorView> value_scale = {};
  /// That the scales' values are known to be in their range, and are not to be
  /// looked at again for each request: of keys that stay they were checked when
  /// they were stored.
  bool scales_checked = false;
  /// What the page is known by whose first rows these are, where the keys stay
  /// between problems (core/page_numbers.h); 0 for others. key is then (1, Hkv,
  /// n, Dk), with the strides of a whole page that is row-major and has room
  /// for more keys; value likewise.
  uint64_t page = 0;
};

/// Blocks that follow each other.
using KeyValueBlocks = absl::InlinedVector<KeyValueBlock, 1>;

/// How far a score has come: each stage has the ones before it.
enum class ScoreStage : uint8_t {
  kScaled,  // the scoring function, of every key, masked or not
  kCapped,  // after the softcap, likewise
  kMasked,  // after bias, ALiBi and masks; -inf where a key takes no part
};

/// Results beside `output`.
struct WantedOutputs {
  bool weights = false;
  bool weights_after_dropout = false;  // which weights: those after dropout
  bool lse = false;
  /// The k largest weights of each row with their keys, before dropout: 1 <= k
  /// <= Lk, of a packed batch's longest entry. They fall; of equal ones the
  /// lower key comes first. Where fewer keys take part: key -1, weight 0. Keys
  /// of a packed batch count from their entry's first one. A row of NaN has NaN
  /// with the first keys that take part.
  std::optional<int64_t> top_k = {};
  /// For every key the sum over the rows of its weights, before dropout.
  bool key_weights = false;
  std::optional<ScoreStage> scores = {};

  /// Whether something is made of every single weight, which is known only when
  /// a row's keys have all been scored.
  bool AnyOfWeights() const { return weights || top_k || key_weights; }
  /// Whether scoring each key once is enough.
  bool OfOneSweep() const { return !AnyOfWeights() && !scores; }
};

struct AttentionProblem {
  TensorView query;
  /// Where the entries of a packed batch start (cu_seqlens, indptr): INT32 or
  /// INT64, (B + 1), the first 0, none below the one before it, the last T, or
  /// S. Both or neither, but for key_value_of_entries; with neither attend_mask
  /// nor bias. Each entry means what it means by itself.
  std::optional<TensorView> query_starts;
  std::optional<TensorView> key_starts;
  /// Lk is the sum over the blocks. A plain problem has one; none means Lk = 0
  /// and Dv = 0.
  KeyValueBlocks key_value;
  /// In place of key_value, where not empty: of each entry its own, B of them;
  /// or as many as query_starts has entries, and then there are no key_starts.
  /// Their blocks have four extents, of batch 1, and one value width. Each
  /// entry means what it means by itself: lengths may differ.
  std::vector<KeyValueBlocks> key_value_of_entries;
  Scoring scoring;
  std::optional<double> softcap;  // c * tanh(score / c); finite, > 0
  Masks masks;
  /// ALiBi (Press et al. 2022): FP32, (Hq) or (B, Hq). Adds -slope * |p -
  /// position of the key| to the score, with the bias; positions are those of
  /// `masks`.
  std::optional<TensorView> alibi_slopes;
  /// Attention sinks: FP32, (Hq) or (B, Hq), below +inf. A logit that takes
  /// part in the softmax's sum, in lse too, and has no value; neither scaled,
  /// capped nor masked. A row without keys gives 0, and the sink as lse,
  /// whatever empty_rows says. -inf is no sink.
  std::optional<TensorView> sinks;
  bool sinks_checked = false;        // their values, by the caller
  bool attend_mask_checked = false;  // likewise, and its type
  /// Of a batch that this is a part of: errors count entries from there.
  int64_t first_entry = 0;
  /// key and value are views of (tokens, heads, width): errors have that shape.
  bool tokens_first = false;
  Dropout dropout;
  EmptyRows empty_rows = EmptyRows::kZero;
  WantedOutputs wanted;
};

/// Where results go: row-major views of the caller's memory with the shapes
/// that ValidatedProblem names. output and lse may also have four and three
/// extents, (B, Hq, Lq, Dv) and (B, Hq, Lq), in any order: of output, rows are
/// contiguous. Likewise top_k_indices and top_k_weights, (B, Hq, Lq, k), and
/// key_weights, (B, Hq, Lk), whose last extents are contiguous. What is not
/// wanted is not looked at.
struct AttentionOutputs {
  MutableTensorView output;              // the query's type
  MutableTensorView weights;             // FP32
  MutableTensorView lse;                 // FP32
  MutableTensorView top_k_indices = {};  // INT64
  MutableTensorView top_k_weights = {};  // FP32
  MutableTensorView key_weights = {};    // FP32
  MutableTensorView scores = {};         // FP32
};

}  // namespace attention

#endif  // ATTENTION_CORE_PROBLEM_H_
