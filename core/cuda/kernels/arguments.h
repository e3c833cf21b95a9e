#ifndef ATTENTION_CORE_CUDA_KERNELS_ARGUMENTS_H_
#define ATTENTION_CORE_CUDA_KERNELS_ARGUMENTS_H_

#include <cstdint>

/// What kernels are told, as plain structs that nvcc and the host's compiler
/// lay out alike and that are passed by value. Pointers are the device's. Every
/// tensor is row-major without gaps and begins at a multiple of 16 bytes, but
/// for those of RearrangeArgs. Extents as in core/problem.h; every extent of a
/// launch is above 0, except where a comment says otherwise.
namespace attention::cuda {

enum class Element : int32_t { kFloat32, kFloat16, kBFloat16 };

/// Bytes of one element.
constexpr int64_t ElementBytes(Element type) {
  return type == Element::kFloat32 ? 4 : 2;
}

/// Rows of numbers: (B, heads, length, width).
struct Rows {
  const void* data = nullptr;
  Element type = Element::kFloat32;
  int32_t width = 0;
  int64_t heads = 0;
  int64_t length = 0;
};

/// What a score is factor times the sum of; score-inl.h has the terms. Rows of
/// queries and keys may be projected first: a bilinear score is a dot product
/// with queries that were multiplied by M.
enum class Score : int32_t {
  kDot,       // q[n] k[n]
  kAdditive,  // term_weights[n] tanh(q[n] + k[n])
  kGaussian,  // (q[n] - k[n])^2
};

/// The keys begin ... end - 1, as core's KeysInRange() says.
struct KeySpan {
  int64_t begin;
  int64_t end;
};

/// A mask or bias as the caller gave it; element (b, h, i, j) lies at the sum
/// of index times stride, in elements; 0 where it is broadcast. Elements of a
/// row lie side by side, stride_j 1, or there is one for all; each row of
/// several begins at a multiple of 16 bytes.
struct Broadcast {
  const void* data = nullptr;        // null: there is none
  Element type = Element::kFloat32;  // of a bias; a mask has bytes
  int64_t stride_b = 0;
  int64_t stride_h = 0;
  int64_t stride_i = 0;
  int64_t stride_j = 0;
};

/// Dropout after core/philox.h. Its pattern counts entries, heads and rows of
/// the whole job, from the first ones of a slice.
struct DropoutArgs {
  int64_t first_entry = 0;
  int64_t first_head = 0;
  int64_t first_row = 0;
  int32_t active = 0;
  uint32_t threshold = 0;  // floor(p * 2^32)
  uint64_t seed = 0;
  float kept = 1;  // 1 / (1 - p)
};

/// Bytes of shared memory that attend_mma asks for without looking whether a
/// block may have so much.
inline constexpr int64_t kMmaLeastShared = int64_t{99} * 1024;

/// Why `recompute` is to compute a row's output again.
enum class RowMark : uint8_t {
  kNone,
  kNotFinite,  // it is not finite: a key that takes no part may have done it
  kAveraged,   // no key takes part, and the mean of all values is asked for
};

/// One attention problem, for all kernels that see its rows: kernels read what
/// concerns them.
// Grouped by meaning: 16 bytes of padding do no harm.
// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding)
struct AttentionArgs {
  int64_t batch = 0;
  int64_t query_heads = 0;
  int64_t query_length = 0;
  int64_t key_length = 0;
  /// Consecutive query heads, a kv group, whose rows share tiles: a divisor of
  /// query_heads / key.heads and of query_heads / value.heads; 1 where heads
  /// have term_weights of their own.
  int64_t heads_per_group = 1;

  Score score = Score::kDot;
  double factor = 1;   // finite in FP32
  double softcap = 0;  // 0: none; else 2^-60 to FP32's largest number
  /// (B, Hq, Lq, width), the problem's query or projected rows.
  Rows query;
  /// (B, Hkv, Lk, width), likewise; projected keys have Hq heads where their
  /// matrix has a head extent.
  Rows key;
  Rows value;  // (B, Hkv, Lk, Dv); Dv may be 0 where lse or weights are wanted
  /// Where keys and values lie in pages, (Hkv, key.length, width) each, the
  /// addresses of these: key j is row j % key.length of page j / key.length.
  /// The last page may end with its last key's row of its last head. B is 1
  /// then, key.length is value.length, and Lk below 2^31. Null: in one piece.
  const void* const* key_pages = nullptr;
  const void* const* value_pages = nullptr;
  const float* term_weights =
      nullptr;                     // (Hq, width) or, with stride 0, (width)
  int64_t term_weight_stride = 0;  // elements from head to head

  const KeySpan* key_ranges =
      nullptr;  // (B, Lq); null: every key for every row
  Broadcast attend_mask;
  Broadcast bias;
  /// ALiBi: (B, Hq) slopes; and of each batch entry the position of its first
  /// row, counted as key indices (core's RowPosition()). Null: there is none.
  const float* alibi_slopes = nullptr;
  const double* alibi_positions = nullptr;
  const float* sinks = nullptr;  // (B, Hq), -inf for none; null: none at all
  DropoutArgs dropout;
  int32_t uniform_empty_rows = 0;

  void* output = nullptr;  // (B, Hq, Lq, Dv)
  Element output_type = Element::kFloat32;
  float* lse = nullptr;      // (B, Hq, Lq); null: not wanted
  float* weights = nullptr;  // (B, Hq, Lq, Lk); null: not wanted
  int32_t weights_after_dropout = 0;

  /// (B, Hq, Lq), kNone before the first kernel.
  RowMark* marks = nullptr;
  /// Not 0 once a row has a mark. The host reads it, where it lies.
  int32_t* marked = nullptr;
  /// (B, Hq, Lq) each: the largest score of a row and its sum of
  /// exponentials. Written by `attend` and `merge` where not null, read by
  /// `weights`.
  float* row_max = nullptr;
  float* row_sum = nullptr;

  /// Of shared memory that a block may have on this device. No device with
  /// tensor cores for BF16 has less than this.
  int64_t most_shared_bytes = kMmaLeastShared;

  /// Ranges of the keys that blocks of their own work on; each is a multiple of
  /// kSplitUnit (limits.h) keys. With more than one, `attend` writes partials
  /// alone and `merge` makes results of them.
  int64_t splits = 1;
  int64_t keys_per_split = 0;
  float* partials = nullptr;  // PartialFloats(*this) of them
};

/// Several pieces of work in one launch, each with arguments of its own: block
/// n of the launch is block n - first_blocks[e] of entry e, the last one that
/// begins there or before.
template <typename Args>
struct EntriesOf {
  const Args* entries = nullptr;          // `count`, in the device's memory
  const int64_t* first_blocks = nullptr;  // `count`, likewise, from 0 upwards
  int64_t count = 0;
};

/// Problems that one launch computes.
using EntriesArgs = EntriesOf<AttentionArgs>;

/// to = from W: the additive score's q W_q and k W_k, bilinear's q M.
struct ProjectArgs {
  int64_t batch = 0;
  Rows from;                     // (B, from.heads, length, from.width)
  const void* matrix = nullptr;  // (heads or 1, from.width, to_width)
  Element matrix_type = Element::kFloat32;
  int64_t matrix_stride = 0;  // elements from head to head, 0: one for all
  float* to = nullptr;        // (B, to_heads, length, to_width)
  int64_t to_heads = 0;       // a multiple of from.heads, which are repeated
  int32_t to_width = 0;
};

/// FP16 has few small numbers: weights in FP16 are taken as much larger as the
/// largest of them, 1, lets them. Below 2^-40 they are 0: a key then loses no
/// more than the smallest number of an output, before dropout's factor.
inline constexpr float kHalfProbability = 0x1p15F;

/// Softmax over a finished QK: result rows first_row ... first_row + rows - 1
/// of the problem, numbered over (B, Hq, Lq). Scale, softcap, bias, masks,
/// softmax, dropout, lse in one pass. Only for Score::kDot.
struct SoftmaxRowsArgs {
  AttentionArgs problem;
  int64_t first_row = 0;
  int64_t rows = 0;
  const float* scores = nullptr;  // (rows, score_stride): q.k, unscaled
  int64_t score_stride = 0;       // elements, >= Lk
  /// (rows, probability_stride): weights after dropout, for PV. May be `scores`
  /// itself where the type is FP32 and the strides are equal. Of FP16 they are
  /// weights before dropout's factor, kHalfProbability times as large.
  void* probabilities = nullptr;
  Element probability_type = Element::kFloat32;
  int64_t probability_stride = 0;
};

/// PV of probabilities on its way to the output: rounds rows first_row ...
/// first_row + rows - 1 and marks those that are not finite. Takes back what
/// FP16 probabilities are multiplied by.
struct FinishOutputArgs {
  AttentionArgs problem;
  int64_t first_row = 0;
  int64_t rows = 0;
  const float* pv = nullptr;  // (rows, Dv)
  Element probability_type = Element::kFloat32;
};

/// Copies a tensor of four extents from one place of the device's memory to
/// another, both with strides of their own. Its elements, or whatever lies
/// without gaps in both places, are `extents[4]` units each.
struct RearrangeArgs {
  const void* from = nullptr;
  void* to = nullptr;
  /// Bytes of what is moved at once: 1, 2, 4 or 16. Divides both addresses and
  /// every stride.
  int32_t unit = 1;
  int64_t extents[5] = {1, 1, 1, 1, 1};
  int64_t from_strides[5] = {};  // bytes
  int64_t to_strides[5] = {};    // bytes
};

/// Tensors that one launch copies, each of at least one unit.
using RearrangeEntriesArgs = EntriesOf<RearrangeArgs>;

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_KERNELS_ARGUMENTS_H_
