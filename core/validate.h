#ifndef ATTENTION_CORE_VALIDATE_H_
#define ATTENTION_CORE_VALIDATE_H_

#include <cstdint>
#include <optional>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "core/problem.h"

namespace attention {

class ValidatedProblem;

/// Checks every rule of the numeric contract, once, including the values of
/// valid_lens, attend_mask, query_offsets, sinks and scales. INVALID_ARGUMENT
/// names the field first, what it had and what was expected:
///   key: shape [2, 10, 3] has width 3, query has 2 (scaled dot product needs
///   equal widths)
/// Fields are named as on the wire: query, key, value, key_scale, value_scale
/// (key[2] where there are several blocks), valid_lens, attend_mask, bias, w_q,
/// w_k, w_v, m, scale, sigma, softcap, query_offset, query_offsets, key_offset,
/// window_left, window_right, alibi_slopes, sinks, dropout_p, top_k. query,
/// key, value and bias may lie in a device's memory, whose bytes are not looked
/// at; everything else must lie in the host's. Not for packed batches
/// (core/batch.h).
absl::StatusOr<ValidatedProblem> Validate(const AttentionProblem& problem);

/// A problem that kept every rule, in one form: all ranks widened to four,
/// masks and parameters broadcast by strides of 0, defaults filled in. Views
/// into the caller's memory, which must outlive it and not change.
class ValidatedProblem {
 public:
  struct Block {
    TensorView key;         // (B, Hkv, n, Dk)
    TensorView value;       // (B, Hkv, n, Dv)
    int64_t first_key = 0;  // index of its first key among all keys
    int64_t key_count = 0;  // n; never 0
    /// (B, Hkv, n); both where key_type has scales, else neither.
    std::optional<TensorView> key_scale = {};
    std::optional<TensorView> value_scale = {};
    /// As KeyValueBlock has it.
    uint64_t page = 0;
  };

  // Extents. Their products (outputs and weights in bytes) fit into 63 bits.
  int64_t batch = 0;         // B
  int64_t query_heads = 0;   // Hq
  int64_t kv_heads = 0;      // Hkv, divides Hq
  int64_t query_length = 0;  // Lq
  int64_t key_length = 0;    // Lk
  int64_t query_width = 0;   // Dq
  int64_t key_width = 0;     // Dk
  int64_t value_width = 0;   // Dv
  int64_t hidden_width = 0;  // h, where the scoring is additive

  TensorView query;  // (B, Hq, Lq, Dq)
  /// Of all keys and values; without any the query's.
  DataType key_type = DataType::kFloat32;
  absl::InlinedVector<Block, 1> key_value;  // in order of first_key
  /// Defaults filled in. Parameters are (Hq, Dq, h), (Hq, Dk, h), (Hq, h) and
  /// (Hq, Dq, Dk), with stride 0 over heads that share them.
  Scoring scoring;
  double scale = 1.0;  // of scaled dot product and bilinear
  std::optional<double> softcap;
  std::optional<TensorView> valid_lens;   // (B, Lq), stride 0 where shared
  std::optional<TensorView> attend_mask;  // (B, Hq, Lq, Lk), strides 0 likewise
  std::optional<TensorView> bias;         // (B, Hq, Lq, Lk), strides 0 likewise
  Causal causal = Causal::kNone;
  /// Row i stands at position i + query_position, or i + query_offsets[b] where
  /// those are given; key j at j + key_position.
  int64_t query_position = 0;
  std::optional<TensorView> query_offsets;  // (B)
  int64_t key_position = 0;
  Window window;
  std::optional<TensorView> alibi_slopes;  // (B, Hq), stride 0 where shared
  std::optional<TensorView> sinks;         // (B, Hq), stride 0 where shared
  Dropout dropout;                         // p is 0 unless training
  EmptyRows empty_rows = EmptyRows::kZero;
  WantedOutputs wanted;

  /// The key/value head that query head `query_head` reads.
  int64_t KvHead(int64_t query_head) const {
    return query_head / (query_heads / kv_heads);
  }

  /// Of a packed batch, which entry this is: dropout counts by it.
  int64_t packed_entry = 0;

  /// Of a batch entry's query head; 0 where there are none.
  float AlibiSlope(int64_t batch_entry, int64_t query_head) const;
  /// The same; -inf where it has none.
  float Sink(int64_t batch_entry, int64_t query_head) const;

  // What the caller is given, in the query's own rank.
  Shape output_shape;  // (B, Hq, Lq, Dv) or its shorter forms; the query's type
  Shape weights_shape;  // (B, Hq, Lq, Lk) or shorter; FP32
  Shape lse_shape;      // (B, Hq, Lq) or shorter; FP32
  Shape top_k_shape;    // (B, Hq, Lq, k) or shorter; INT64 and FP32; if wanted
  Shape key_weights_shape;  // (B, Hq, Lk) or shorter; FP32
  // Scores have weights_shape.

  /// Bytes of all wanted results together; saturates at 2^63 - 1.
  int64_t ResultBytes() const;

 private:
  friend absl::StatusOr<ValidatedProblem> Validate(const AttentionProblem&);
  class OnlyValidate {
    friend absl::StatusOr<ValidatedProblem> Validate(const AttentionProblem&);
    OnlyValidate() = default;
  };

 public:
  /// For Validate(), which makes it where it is returned: it is large.
  explicit ValidatedProblem(OnlyValidate) {}
};

/// The keys that valid_lens, the causal rule and the window leave to a row, as
/// a half-open range of key indices within [0, Lk]; begin == end where none.
/// What attend_mask and bias take out of it is up to the reader.
struct KeyRange {
  int64_t begin = 0;
  int64_t end = 0;
};
KeyRange KeysInRange(const ValidatedProblem& problem, int64_t batch,
                     int64_t row);
/// Whether that leaves any key out in any row, as far as the options tell.
bool HasRangeMask(const ValidatedProblem& problem);

/// A row's position p, counted as key indices: key j is |result - j| away from
/// it. Exact below 2^53.
double RowPosition(const ValidatedProblem& problem, int64_t batch, int64_t row);

}  // namespace attention

#endif  // ATTENTION_CORE_VALIDATE_H_
