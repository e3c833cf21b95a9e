#ifndef ATTENTION_CORE_CPU_KERNELS_ARGUMENTS_H_
#define ATTENTION_CORE_CPU_KERNELS_ARGUMENTS_H_

#include <cstdint>

/// What the vector kernels are given. Everything that crosses into code
/// compiled for one instruction set is a plain struct of numbers and pointers:
/// an inline function of a class, instantiated there, could be picked by the
/// linker for the whole program.
namespace attention::cpu {

/// Keys of a tile, at most; also what a row of scores has room for.
inline constexpr int64_t kMaxTileKeys = 512;
/// Floats from one row of scores to the next. Not a power of two, so that the
/// rows of a micro-tile do not fall into the same cache sets.
inline constexpr int64_t kScoreStride = kMaxTileKeys + 16;
/// Rows whose sums are in registers at once, at most, on any instruction set.
inline constexpr int64_t kMaxMicroRows = 32;
/// Lanes of a vector of floats, at most.
inline constexpr int64_t kMaxLanes = 16;

enum class Element : uint8_t { kFloat32, kFloat16, kBFloat16 };

/// Bytes of an element.
constexpr int64_t SizeOf(Element type) {
  return type == Element::kFloat32 ? 4 : 2;
}

/// Rows of one head of a tensor: `data` is the first row's first element.
/// Strides in bytes, any sign; no alignment promised.
struct RowSource {
  const unsigned char* data;
  int64_t row_stride;
  int64_t column_stride;
  Element type;
};

/// How QK makes a score of a packed query and a packed key. Each has a function
/// in qk-inl.h.
enum class Score : uint8_t {
  kDot,         // sum q k
  kDifference,  // - sum (q - k)^2
  kTanh,        // sum w / (q k + 1), q and k exponentials e^(2 x)
  kTanhWide,    // the same, q and k in pairs m, n that stand for m 2^n
};

/// What happens to scores between QK and PV, beside the softmax.
struct Epilogue {
  /// Per key of the tile, in whole panels, added to dot products; null for
  /// none.
  const float* key_addend;
  /// Added to the scores of a row; null for none.
  const float* row_addend;
  /// Multiplies scores; 1 for none.
  float factor;
  /// Above 0: scores, natural until then, are replaced by log2(e) * softcap *
  /// tanh(score / softcap).
  float softcap;
  /// ALiBi, per row: what a score loses for every position between the row and
  /// the key, and the row's position, counted from the tile's first key; null
  /// for none.
  const float* alibi_slopes;
  const float* alibi_positions;
  /// Per row: the element of the tile's first key; null for none. Strides in
  /// bytes from key to key.
  const unsigned char* const* mask_rows;
  int64_t mask_stride;
  const unsigned char* const* bias_rows;
  int64_t bias_stride;
  Element bias_type;
  /// From the start of those rows to the tile's first key.
  int64_t first_key;
};

/// Fills factors[0 ... count - 1]: what dropout multiplies the weights of `row`
/// by, from key `first_key` on.
using DropoutRow = void (*)(const void* context, int64_t row, int64_t first_key,
                            int64_t count, float* factors);

/// Memory that will be read, or written, soon.
struct PrefetchRange {
  const unsigned char* data;
  int64_t bytes;  // 0 for none
};
inline constexpr int kMaxPrefetch = 4;
/// Bytes of a line of the caches.
inline constexpr int64_t kLine = 64;

struct Bf16Products;

/// The operands of QK and PV in BF16, two elements in the place of a float.
/// Queries and keys hold 0 beyond their width, and so does what stands beside
/// the last key.
struct Bf16Operands {
  /// Of a score, in pairs; a multiple of kBf16Depth.
  int64_t width;
  /// Rows of `width` pairs, as many as whole row tiles of the products have.
  const float* queries;
  /// As PackKeys leaves rows of `width` pairs: [32 keys][width][key].
  const float* keys;
  /// Columns of values, in panels of 32.
  int64_t value_panels;
  /// [32 keys][panel][16 pairs][32 columns]: a pair is key i and key 16 + i.
  const float* values;
  /// Scratch for the weights of some rows, paired like the values:
  /// kMaxMicroRows rows of kBf16WeightStride.
  float* weights;
  const Bf16Products* products;
};

/// Weights that some rows of a tile give to its keys begin ... end - 1, before
/// normalisation and relative to the rows' maxima so far; to the tile's other
/// keys they give none.
struct TileWeights {
  int64_t first_row;
  int64_t rows;
  int64_t begin;
  int64_t end;
  /// From the tile's first key on, rows of kScoreStride floats.
  const float* weights;
};

/// A block of rows against a tile of keys. Scores are in units in which the
/// softmax is 2^(score - max) / sum.
struct TileArgs {
  int64_t rows;
  int64_t keys;         // <= kMaxTileKeys
  int64_t score_width;  // elements of a packed query
  int64_t value_width;  // a multiple of the lanes
  Score score;
  /// Queries as PackQueries leaves them; keys as PackKeys does.
  const float* queries;
  const float* packed_keys;
  /// Of all but the last part of wide queries and keys: rows of kScoreStride
  /// sums, which the scores start from. Null where the scores start from 0.
  float* partial;
  /// Additive scoring: w per hidden unit.
  const float* tanh_weights;
  /// One row per key, `value_stride` floats apart, readable in whole vectors.
  /// What is not finite is left out of the weighted values, and met_non_finite
  /// told.
  const float* values;
  int64_t value_stride;
  bool* met_non_finite;
  /// For attend_rows, in place of packed keys and of values: rows as they lie
  /// in memory, of so many elements, strides in bytes. Queries are row-major,
  /// score_width floats apart, 0 beyond the keys' width.
  const unsigned char* key_rows;
  int64_t key_row_stride;
  int64_t key_row_width;
  const unsigned char* value_rows;
  int64_t value_row_stride;
  int64_t value_row_width;
  Element row_type;
  /// Per row: the keys of the tile that its length, causal rule and window
  /// leave, as a half-open range; begin == end for none.
  const int32_t* begin;
  const int32_t* end;
  Epilogue epilogue;
  /// Null for none.
  DropoutRow dropout;
  const void* dropout_context;
  int64_t dropout_first_key;

  /// Gaussian scores by dot products, else null. Per row: 1, or becomes 1 with
  /// the first key that takes part and scores below far_score before the
  /// epilogue.
  uint8_t* met_far;
  float far_score;

  /// Per row: running maximum (-inf before the first key), running sum (in
  /// FP64: a rounding to FP32 for every tile would show at great lengths), and
  /// weighted values, value_width floats apart, 0 before the first key.
  float* max;
  double* sum;
  float* output;
  /// Scratch: kScoreRows rows of kScoreStride floats; kMaxMicroRows of them.
  float* scores;
  float* weights;

  /// Where weights are wanted, else null: called once for every row of the
  /// tile, some rows at a time, when their max and sum count the tile.
  void (*keep_weights)(void* context, const TileWeights& weights);
  void* keep_context;
  bool keep_after_dropout;

  /// Brought closer, bit by bit, while the tile is computed.
  PrefetchRange prefetch[kMaxPrefetch];
  int64_t prefetch_lines;  // of all of them
  /// For attend_bf16 and store_weights_bf16, in place of `queries`,
  /// `packed_keys` and `values`; the epilogue's factor makes scores of what QK
  /// gives.
  Bf16Operands bf16;
};

/// Rows of TileArgs::scores: those of a micro-tile, then a row of masks and
/// bias, one of dropout's factors, one of scores before the epilogue.
inline constexpr int64_t kAddendRow = kMaxMicroRows;
inline constexpr int64_t kDropoutRow = kMaxMicroRows + 1;
inline constexpr int64_t kRawRow = kMaxMicroRows + 2;
inline constexpr int64_t kScoreRows = kMaxMicroRows + 3;

/// Second sweep: weights of a tile whose rows' softmax is known.
struct WeightArgs {
  const float* inverse_sum;  // per row
  float* const* weights;     // per row: of the tile's first key; null: skip it
  bool after_dropout;
};

/// Normalises rows and stores them.
struct FinishArgs {
  int64_t rows;
  int64_t width;
  const float* output;  // output_stride floats apart
  int64_t output_stride;
  const double* sum;
  Element type;
  unsigned char* const* to;  // per row; null: leave it out
};

/// to (+)= from * m, in FP32.
struct ProjectArgs {
  const float* from;  // rows, from_stride floats apart
  int64_t from_stride;
  int64_t rows;
  int64_t depth;
  const float* m;  // depth rows, m_stride floats apart
  int64_t m_stride;
  int64_t columns;  // a multiple of the lanes
  float* to;        // rows, to_stride floats apart
  int64_t to_stride;
  bool add;  // to what `to` holds
};

/// Rows around a centre: to = from - centre, and what that adds to the rows'
/// squared norms.
struct CentreArgs {
  const float* from;  // rows, from_stride floats apart
  int64_t from_stride;
  int64_t rows;
  int64_t width;
  const float* centre;
  float* to;
  int64_t to_stride;
  double* squared_norms;  // per row
};

/// Keys, and elements of a row, of what attend_small takes, at most.
inline constexpr int64_t kSmallKeys = 16;
inline constexpr int64_t kSmallWidth = 64;

/// All rows of one head against all its keys, every one of which takes part.
/// Distances of rows in floats.
struct SmallArgs {
  int64_t rows;
  int64_t keys;  // 1 to kSmallKeys
  int64_t width;
  int64_t value_width;
  const float* query;
  int64_t query_stride;
  const float* key;
  int64_t key_stride;
  const float* value;
  int64_t value_stride;
  /// Makes the softmax one of powers of 2 of the scores.
  float factor;
  float* output;  // rows of value_width floats
};

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_KERNELS_ARGUMENTS_H_
