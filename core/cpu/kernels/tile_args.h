#ifndef ATTENTION_CORE_CPU_KERNELS_TILE_ARGS_H_
#define ATTENTION_CORE_CPU_KERNELS_TILE_ARGS_H_

#include <cstdint>

#include "core/cpu/kernels/sizes.h"

/// A block of rows against a tile of keys, as the kernels are given it.
/// Everything that crosses into code compiled for one instruction set is a
/// plain struct of numbers and pointers: an inline function of a class,
/// instantiated there, could be picked by the linker for the whole program.
namespace attention::cpu {

/// Which operands QK and PV multiply, and where they lie.
enum class Operands : uint8_t {
  kPacked,       // FP32, packed: PackedOperands
  kInPlace,      // a few rows, keys and values read once: InPlaceOperands
  kBf16,         // Bf16Operands
  kBf16InPlace,  // like kInPlace, multiplied as BF16: both of these
  kInt8InPlace,  // like kInPlace, of INT8, multiplied as such: Int8Operands
};

/// How QK makes a score of a packed query and a packed key. Each has a function
/// in qk-inl.h.
enum class Score : uint8_t {
  kDot,         // sum q k
  kDifference,  // - sum (q - k)^2
  kTanh,        // sum w / (q k + 1), q and k exponentials e^(2 x)
  kTanhWide,    // the same, q and k in pairs m, n that stand for m 2^n
};

struct PackedOperands {
  Score score;
  int64_t width;  // elements of a query
  /// As PackQueries and PackKeys leave them.
  const float* queries;
  const float* keys;
  /// Per key of the tile, in whole panels, added to dot products; null for
  /// none.
  const float* key_addend;
  /// Additive scoring: w per hidden unit.
  const float* tanh_weights;
  /// Of all but the last part of wide queries and keys: rows of kScoreStride
  /// sums, which the scores start from. Null where the scores start from 0.
  float* partial;
  /// Where the values of each key of the tile begin, readable in whole vectors.
  const float* const* values;
};

/// Scales of keys and values that are read where they lie, at most: whatever
/// they are multiplied by, in whichever order, stays in FP32's range.
inline constexpr float kMostScaleInPlace = 0x1p80F;
/// The largest magnitude of an element with a scale: FP8's.
inline constexpr float kMostScaledElement = 448;
/// What the products of weights and scales are counted in. Elements with a
/// scale are whole numbers, or multiples of 2^-9, up to 448: a product is then
/// lost below the range of normal numbers only where it is with a value itself.
inline constexpr float kScaledWeightUnit = 0x1p-9F;

/// Keys and values as they lie in memory, of one type.
struct InPlaceOperands {
  /// Row-major, query_stride floats apart, 0 beyond the keys' width.
  const float* queries;
  int64_t query_stride;
  /// Where each key of the tile begins, and from element `ahead` on those that
  /// will be read next.
  const unsigned char* const* keys;
  int64_t key_width;
  /// The same of their values.
  const unsigned char* const* values;
  int64_t value_width;
  int64_t ahead;
  Element type;
  /// Of INT8 and FP8: the scale of each key, and of its values, of the tile,
  /// readable in whole panels, 0 beyond the last key; magnitudes up to
  /// kMostScaleInPlace.
  const float* key_scales;
  const float* value_scales;
};

struct ByteTable;
struct Bf16Products;

/// Operands in BF16, two elements in the place of a float. Queries and keys
/// hold 0 beyond their width, and so does what stands beside the last key.
struct Bf16Operands {
  /// Whose sum an element is: 1 of BF16, 2 of FP16.
  int64_t terms;
  /// Of a score, in pairs of one term; a multiple of kBf16Depth.
  int64_t width;
  /// Rows of `terms` times `width` pairs, as many rows as whole row tiles of
  /// the products have.
  const float* queries;
  /// As PackKeys leaves such rows: [32 keys][term][width][key].
  const float* keys;
  /// Of INT8 and FP8: by what the scores of each key of the tile, and its
  /// weights, are multiplied, readable in whole panels; null for others.
  const float* key_scales = nullptr;
  const float* value_scales = nullptr;
  /// Of kBf16InPlace, in place of queries and keys: all queries packed like
  /// keys, and what elements of one byte are, values in kScaledWeightUnit.
  const float* packed_queries;
  const ByteTable* key_table;
  const ByteTable* value_table;
  /// Likewise scratch for some keys and for sums of all rows (products.h).
  float* key_room;
  float* sums;
  int64_t sums_stride;
  /// Columns of values, in panels of 32, of all terms.
  int64_t value_panels;
  /// [32 keys][term][panel][16 pairs][32 columns]: a pair is key i and key
  /// 16 + i.
  const float* values;
  /// Values as they lie, each key's `value_width` elements side by side, for
  /// those that are not finite: they are 0 where they are packed.
  const unsigned char* const* value_rows = nullptr;
  int64_t value_width = 0;
  /// Scratch for the weights of some rows, paired like the values: for each
  /// term, kBf16WeightTerm apart, kMaxMicroRows rows of kBf16WeightStride.
  float* weights;
  const Bf16Products* products;
};

/// What keys and values of INT8 are multiplied by where they lie, and scratch,
/// for the products of Bf16Operands (bf16/int8_products.h).
struct Int8Operands {
  /// Of all queries, and how much those of kDigitRows of them take.
  const int8_t* query_digits;
  int64_t digits_of_rows;
  const int* query_exponents;
  /// Whether the digits say what the queries are. Where not, FP32 decodes.
  bool exact;
  unsigned char* key_room;
  unsigned char* value_room;
  /// Of all rows of a micro-tile.
  float* sums;
  int64_t sums_stride;
};

/// What happens to scores between QK and the softmax, in this order. All scores
/// are natural here, unless there is nothing to add to them (ScoreUnit() in
/// scoring/score_unit.h).
struct Epilogue {
  /// Multiplies what QK gives; 1 for none.
  float factor;
  /// Per row, added to it; null for none.
  const float* row_addend;
  /// Above 0: scores become softcap * tanh(score / softcap).
  float softcap;
  /// ALiBi, per row: what a score loses for every position between the row and
  /// the key, and the row's position, counted from the tile's first key; null
  /// for none.
  const float* alibi_slopes;
  const float* alibi_positions;
  /// Per row: its first element, that of key 0; null for none. Strides in bytes
  /// from key to key.
  const unsigned char* const* mask_rows;
  int64_t mask_stride;
  const unsigned char* const* bias_rows;
  int64_t bias_stride;
  Element bias_type;
  /// The tile's first key among all.
  int64_t first_key;
  /// Per row: the keys of the tile that its length, causal rule and window
  /// leave, as a half-open range; begin == end for none.
  const int32_t* begin;
  const int32_t* end;
};

/// Gaussian rows that lie so far from the centre that a dot product would lose
/// them (scoring/lost_rows.h). Null where none can be lost.
struct FarRows {
  /// Per row: 1, or becomes 1 with the first key that takes part and scores
  /// below `score` before the epilogue.
  uint8_t* met_far_key;
  float score;
};

/// The rows' softmax so far. Its exponentials are 2^(exponent * (score - max)).
struct RowStates {
  float exponent;  // above 0
  float* max;      // -inf before the first key
  /// In FP64: a rounding to FP32 for every tile would show at great lengths.
  double* sum;
  /// Weighted values, `width` floats apart (a multiple of the lanes), 0 before
  /// the first key.
  float* output;
  int64_t width;
};

/// Dropout after the softmax.
struct TileDropout {
  /// Fills factors[0 ... count - 1]: what the weights of `row` are multiplied
  /// by, from key `first_key` on. Null for no dropout.
  void (*fill)(const void* context, int64_t row, int64_t first_key,
               int64_t count, float* factors);
  const void* context;
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

/// Who is told weights while they are computed.
struct WeightSink {
  /// Called once for every row of the tile, some rows at a time, when their max
  /// and sum count the tile. Null for nobody.
  void (*keep)(void* context, const TileWeights& weights);
  void* context;
  bool after_dropout;
};

/// Memory that will be read, or written, soon.
struct PrefetchRange {
  const unsigned char* data;
  int64_t bytes;
};

/// Brought closer, bit by bit, while a tile of packed operands is computed.
struct Prefetch {
  /// Keys and values of a tile in pages of 16, queries and results.
  static constexpr int64_t kRanges = 2 * (kMaxTileKeys / 16) + 2;
  PrefetchRange ranges[kRanges];
  int64_t ends[kRanges];  // lines of the ranges up to each, with it
  int64_t count;
  int64_t lines;  // of all of them
};

struct TileArgs {
  int64_t rows;
  int64_t keys;  // <= kMaxTileKeys
  Operands operands;
  PackedOperands packed;
  InPlaceOperands in_place;
  Bf16Operands bf16;
  Int8Operands int8;
  Epilogue epilogue;
  FarRows far_rows;
  RowStates states;
  TileDropout dropout;
  WeightSink weights;
  Prefetch prefetch;
  /// Told where a value is not finite. From then on such values are left out of
  /// the products, and added where their keys take part.
  bool* met_non_finite;
  /// Scratch: kScoreRows rows of kScoreStride floats; kMaxMicroRows of them.
  float* scores;
  float* unnormalised;
};

/// Rows of TileArgs::scores: those of a micro-tile, then a row of masks and
/// bias, one of dropout's factors, one of scores before the epilogue.
inline constexpr int64_t kAddendRow = kMaxMicroRows;
inline constexpr int64_t kDropoutRow = kMaxMicroRows + 1;
inline constexpr int64_t kRawRow = kMaxMicroRows + 2;
inline constexpr int64_t kScoreRows = kMaxMicroRows + 3;

/// Weights that a row gives to the keys begin ... end - 1 of a tile, normalised
/// and before dropout: exactly 0 for those that take no part, which score -inf.
/// Both from the tile's first key on.
struct RowWeights {
  int64_t row;
  int64_t begin;
  int64_t end;
  const float* scores;
  const float* weights;
};

/// Second sweep: weights of a tile whose rows' softmax is known.
struct WeightArgs {
  const uint8_t* rows;       // per row: 0 leaves it out
  const float* inverse_sum;  // per row
  float* const* weights;     // per row: of the tile's first key; null for none
  bool after_dropout;        // the weights that are stored
  /// Told of every row's weights. Null for nobody.
  void (*take)(void* context, const RowWeights& weights);
  void* context;
};

/// Where the scores of a tile go as they leave the epilogue.
struct ScoreArgs {
  float* const* scores;  // per row: of the tile's first key
};

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_KERNELS_TILE_ARGS_H_
