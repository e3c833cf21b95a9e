#ifndef ATTENTION_CORE_CPU_KERNELS_H_
#define ATTENTION_CORE_CPU_KERNELS_H_

#include <cstdint>

/// What the vector kernels are given and how they are reached. Everything that
/// crosses into code compiled for one instruction set is a plain struct of
/// numbers and pointers: an inline function of a class, instantiated there,
/// could be picked by the linker for the whole program.
namespace attention::cpu {

/// Keys of a tile, at most; also what a row of scores has room for.
inline constexpr int64_t kMaxTileKeys = 128;
/// Floats from one row of scores to the next. Not a power of two, so that the
/// rows of a group do not fall into the same cache sets.
inline constexpr int64_t kScoreStride = kMaxTileKeys + 16;
/// Rows of a group, at most, on any instruction set.
inline constexpr int64_t kMaxGroupRows = 32;
/// Rows of a group of the FP64 kernels, and keys of a tile of theirs, at most;
/// doubles from one row of scores to the next.
inline constexpr int64_t kWideRows = 4;
inline constexpr int64_t kWideKeys = 128;
inline constexpr int64_t kWideStride = kWideKeys + 8;
/// Four exponentials exp(2 x) of such a size may be multiplied.
inline constexpr double kMostWideProjection = 85.0;
/// Lanes of a vector of floats, at most.
inline constexpr int64_t kMaxLanes = 16;

enum class Element : uint8_t { kFloat32, kFloat16, kBFloat16 };

/// Rows of one head of a tensor: `data` is the first row's first element.
/// Strides in bytes, any sign; no alignment promised.
struct RowSource {
  const unsigned char* data;
  int64_t row_stride;
  int64_t column_stride;
  Element type;
};

/// How a score comes from a packed query and a packed key.
enum class Score : uint8_t {
  kDot,         // sum q k
  kDifference,  // - sum (q - k)^2
  kTanh,        // sum w / (q k + 1), q and k exponentials of projections
  kTanhSmall,   // the same where a product of four such denominators is finite
  kTanhExact,   // sum w tanh(q + k), q and k as pairs high, low
};

/// What happens to scores between the two products, beside the softmax.
struct Epilogue {
  /// Per key of the tile, in whole panels, added to dot products; null for
  /// none.
  const float* key_addend;
  /// Added to the scores of a row; null for none.
  const float* row_addend;
  /// Multiplies scores; 1 for none.
  float factor;
  /// Above 0: scores are replaced by softcap * tanh(score).
  float softcap;
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
struct ComingBytes {
  const unsigned char* data;
  int64_t count;  // 0 for none
};
inline constexpr int kMaxComing = 4;
/// Bytes of a line of the caches.
inline constexpr int64_t kLine = 64;
struct Bf16Products;

/// The operands of the two products in BF16, two elements in the place of a
/// float. Queries and keys hold 0 beyond their width, and so does what stands
/// beside the last key.
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
  /// Scratch for the weights of a group, paired like the values:
  /// kMaxGroupRows rows of kBf16WeightStride.
  float* weights;
  const Bf16Products* products;
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
  /// Additive scoring: w per hidden unit.
  const float* tanh_weights;
  /// One row per key, `value_stride` floats apart, readable in whole vectors.
  const float* values;
  int64_t value_stride;
  /// For attend_rows, in place of packed keys and of values: rows of whole
  /// vectors as they lie in memory, strides in bytes; queries are row-major.
  const unsigned char* key_rows;
  int64_t key_row_stride;
  const unsigned char* value_rows;
  int64_t value_row_stride;
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

  /// Per row: running maximum (-inf before the first key), running sum (in
  /// FP64: a rounding to FP32 for every tile would show at great lengths), and
  /// weighted values, value_width floats apart, 0 before the first key.
  float* max;
  double* sum;
  float* output;
  /// Scratch: kMaxGroupRows rows of kScoreStride floats, and two rows more.
  float* scores;

  /// Where set, per row: where weights before normalisation of the tile's keys
  /// go, relative to the maximum so far, which is put into tile_max (per row).
  float* kept;
  int64_t kept_stride;
  float* tile_max;
  bool keep_after_dropout;

  /// Brought closer, bit by bit, while the tile is computed.
  ComingBytes coming[kMaxComing];
  int64_t coming_lines;  // of all of them
  /// For attend_bf16 and store_weights_bf16, in place of `queries`,
  /// `packed_keys` and `values`; the epilogue's factor makes scores of what the
  /// first product gives.
  Bf16Operands bf16;
};

/// Second sweep: weights of a tile whose rows' softmax is known, stored at
/// weights + row * weights_stride.
struct WeightArgs {
  const float* inverse_sum;  // per row
  float* const* weights;     // per row: of the tile's first key
  bool after_dropout;
};

/// Larger results have lost nothing that counts to subnormal numbers
/// (subnormals.h).
inline constexpr float kTinyResult = 1e-26F;

/// Normalises rows and stores them.
struct FinishArgs {
  int64_t rows;
  int64_t width;
  const float* output;  // output_stride floats apart
  int64_t output_stride;
  const double* sum;
  Element type;
  unsigned char* const* to;  // per row
  /// Set to 1 where a row holds NaN or an infinity, to 0 elsewhere.
  uint8_t* not_finite;
  /// Set to 1 where a row holds an element below kTinyResult, to 0 elsewhere.
  uint8_t* tiny;
};

/// Rows that a projection takes at once, at most.
inline constexpr int64_t kMaxProjectRows = 8;

/// Rows times a matrix, summed in FP64.
struct ProjectArgs {
  const float* from;  // rows, from_stride floats apart
  int64_t from_stride;
  int64_t rows;
  int64_t from_width;
  const float* m;  // from_width rows, m_stride floats apart
  int64_t m_stride;
  int64_t to_width;  // a multiple of the lanes
  /// The sums as FP32, to_stride floats apart, and where wanted (not null) what
  /// that rounding took away.
  float* high;
  float* low;
  int64_t to_stride;
  double* wide;  // scratch: kMaxProjectRows from_width
};

/// Rows around a centre: to = from - centre, rounded to FP32, and the squared
/// norms of what that leaves.
struct CentreArgs {
  const float* from;  // rows, from_stride floats apart
  int64_t from_stride;
  int64_t rows;
  int64_t width;
  const float* centre;
  float* to;  // may be `from`
  int64_t to_stride;
  double* squared_norms;  // per row
};

/// FP64: rows times a matrix of FP32. All strides and to_width in elements.
struct WideProjectArgs {
  const double* from;  // rows, from_stride apart
  int64_t from_stride;
  int64_t rows;
  int64_t from_width;
  const float* m;  // from_width rows, m_stride apart
  int64_t m_stride;
  int64_t to_width;  // a multiple of the lanes
  double* to;        // rows, to_width apart
};

/// FP64: a group of kWideRows rows against a tile of keys. Scores are natural
/// ones. Rows that are not there have no keys: begin == end.
struct WideArgs {
  int64_t width;  // of a query
  Score score;    // kDot; kDifference (here the positive sum); kTanhExact
  const double* queries;  // [width][kWideRows]
  /// [width][keys], key_stride apart: a column per key, readable up to a
  /// multiple of the lanes.
  const double* keys;
  int64_t key_stride;
  const double* tanh_weights;  // [width]
  double tanh_weight_sum;
  /// For kTanhExact: exp(2 q) and exp(2 k), laid out alike, and per row whether
  /// they are not to be used. They are good up to kMostWideProjection.
  const double* query_exponentials;
  const double* key_exponentials;
  const uint8_t* exact;
  double factor;   // multiplies scores
  double softcap;  // 0 for none
  /// Per row: the keys of the tile that its length, causal rule and window
  /// leave, as a half-open range.
  const int32_t* begin;
  const int32_t* end;
  /// kWideRows rows, kWideStride apart: the bias, -inf where a mask leaves a
  /// key out; null for none.
  const double* addends;
  /// The same for what dropout multiplies weights by.
  const double* dropout;
  /// Rows of values, value_width apart (a multiple of the lanes), and per key
  /// whether they are finite; null where all are.
  const double* values;
  int64_t value_width;
  const uint8_t* value_finite;
  /// Per row: running maximum (-inf before the first key), running sum (NaN as
  /// soon as a score is NaN or +inf) and weighted values, value_width apart.
  double* max;
  double* sum;
  double* output;
  /// kWideRows rows, kWideStride apart.
  double* scores;
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
  /// A row whose scores' terms all add up to less, by magnitude and with the
  /// factor, is not computed.
  float least_magnitude;
  float* output;  // rows of value_width floats
};

/// The kernels of one instruction set.
struct Kernels {
  const char* name;
  int64_t lanes;
  int64_t group_rows;  // rows that one pass of the first product computes
  bool reads_half;     // the processor converts FP16 by itself
  /// Products of BF16 that this processor has and that are to be used; null for
  /// none.
  const Bf16Products* bf16;

  /// Widens rows to FP32, `to_stride` floats apart, padded with zeros up to
  /// `padded_width`.
  void (*widen_rows)(const RowSource& from, int64_t rows, int64_t width,
                     float* to, int64_t to_stride, int64_t padded_width);
  /// Rows of queries into groups of [width][rows of the group].
  void (*pack_queries)(const float* rows, int64_t stride, int64_t count,
                       int64_t width, float factor, float* packed);
  /// Rows of keys into panels of [width][two vectors], padded with zeros.
  void (*pack_keys)(const float* rows, int64_t stride, int64_t count,
                    int64_t width, float* packed);
  void (*project)(const ProjectArgs& args);
  void (*centre_rows)(const CentreArgs& args);
  /// Whether no magnitude passes `limit`; false where one is NaN.
  bool (*all_within)(const float* values, int64_t count, float limit);
  /// Whether one of a row's elements, of FP32 or BF16, is not 0 and has a
  /// magnitude below `least` or above `most`, NaN being above all. It compares
  /// bits, which tells subnormal numbers from 0 while SubnormalsAreZero
  /// (subnormals.h) lives.
  bool (*any_beyond)(const RowSource& row, int64_t count, float least,
                     float most);
  /// to[i] = exp(2 from[i]).
  void (*exp_twice)(const float* from, int64_t count, float* to);
  /// Adds a tile of keys to its rows' softmax states and weighted values.
  void (*attend_tile)(const TileArgs& args);
  /// The same for a few rows and keys that are not packed.
  void (*attend_rows)(const TileArgs& args);
  /// A small problem's head. False, and the output undefined, where a row's
  /// scores are too small or too large, or its result is not finite.
  bool (*attend_small)(const SmallArgs& args);
  /// Stores the weights of a tile.
  void (*store_weights)(const TileArgs& args, const WeightArgs& weights);
  /// Copies rows of BF16 (a pair in the place of a float, `to_stride` pairs
  /// apart, zeros beyond `width` and from row `rows` to `padded_rows`). False
  /// where one is of a magnitude that products of BF16 do not serve. Null, like
  /// the next three, for an instruction set that has no such products.
  bool (*copy_bf16)(const RowSource& from, int64_t rows, int64_t padded_rows,
                    int64_t width, float* to, int64_t to_stride);
  /// Packs such rows of values, count being a multiple of 32, for the product.
  void (*pack_bf16_values)(const float* rows, int64_t count, int64_t panels,
                           float* packed);
  /// attend_tile and store_weights with products of BF16.
  void (*attend_bf16)(const TileArgs& args);
  void (*store_weights_bf16)(const TileArgs& args, const WeightArgs& weights);
  void (*finish_rows)(const FinishArgs& args);
  /// to[i] = from[i] * factor, past the caches where `to` allows it.
  void (*scale_row)(const float* from, int64_t count, float factor, float* to);

  /// to[i] = from[i], count a multiple of the lanes. False where one is not
  /// finite.
  bool (*widen_to_double)(const float* from, int64_t count, double* to);
  /// to[i] = exp(2 from[i]), count a multiple of the lanes. False where one is
  /// beyond kMostWideProjection, or NaN.
  bool (*wide_exp_twice)(const double* from, int64_t count, double* to);
  void (*wide_project)(const WideProjectArgs& args);
  /// Adds a tile of keys to its rows' softmax states and weighted values.
  void (*wide_attend)(const WideArgs& args);
  /// Adds values weighted with `scores`, as they are given (-0.0 for a key that
  /// takes no part), to the output.
  void (*wide_average)(const WideArgs& args);
  /// Puts the weights of a tile into `scores`, given each row's final state;
  /// those between a row's begin and end are good.
  void (*wide_weights)(const WideArgs& args);
};

/// Bits of hwy's target masks that this build has kernels for and this
/// processor can run, best first; ends with 0.
const int64_t* AvailableTargets();
/// The kernels of one of them.
const Kernels& KernelsOf(int64_t target);

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_KERNELS_H_
