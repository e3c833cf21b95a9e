#ifndef ATTENTION_CORE_CPU_KERNELS_BF16_PRODUCTS_H_
#define ATTENTION_CORE_CPU_KERNELS_BF16_PRODUCTS_H_

#include <cstdint>

#include "core/cpu/kernels/bf16/byte_table.h"
#include "core/cpu/kernels/bf16/int8_products.h"
#include "core/cpu/kernels/sizes.h"

/// Products of BF16 with sums in FP32, for which Highway has no names: written
/// in intrinsics, reached through pointers, absent on other architectures.
///
/// Such instructions take subnormal numbers for 0, and results below the
/// normal range, too (Intel 64 and IA-32 Architectures Software Developer's
/// Manual, volume 2: TDPBF16PS, VDPBF16PS), as FP32 does here.
///
/// An FP16 number is the sum of two BF16 numbers, its terms: 8 bits of its 11
/// are in the first one, the others in the second (TermsOf, tiles-inl.h).
namespace attention::cpu {

/// Rows of a tile of queries; rows of the operands are padded to this.
inline constexpr int64_t kBf16RowTile = 16;
/// Pairs that one step of a product sums over; keys, and columns, of a panel.
inline constexpr int64_t kBf16Depth = 16;
inline constexpr int64_t kBf16Panel = 32;
/// Columns of values that are read in place and multiplied together.
inline constexpr int64_t kBf16InPlaceColumns = 64;
/// Floats from one row of weights to the next. Not a power of two.
inline constexpr int64_t kBf16WeightStride = kMaxTileKeys / 2 + 16;
/// And from the first terms of weights to the second ones.
inline constexpr int64_t kBf16WeightTerm = kMaxMicroRows * kBf16WeightStride;

/// Keys, or values, of a tile as they lie in memory.
struct Bf16Rows {
  /// Where each of `count` rows begins, its elements side by side; from `ahead`
  /// on those of the next tile, which are brought closer meanwhile.
  const unsigned char* const* rows;
  int64_t ahead;
  int64_t count;
  /// BF16, INT8 or FP8, and what elements of the latter are.
  Element type;
  const ByteTable* table;
};

/// One way to compute them. Rows are at most kMaxMicroRows; their operands, and
/// results, are there up to a multiple of kBf16RowTile.
struct Bf16Products {
  const char* name;  // of kernels that use it
  /// Of those that decode with it; null where it does not score keys in place.
  const char* decode_name;
  /// Of those that multiply FP16 with it, in two terms; null where it does not.
  const char* fp16_name;
  const char* suffix;  // of the name of the target

  /// Before the first and after the last product on a thread.
  void (*begin)();
  void (*end)();
  /// `panels` panels of keys: rows of scores, kScoreStride apart, from
  /// operands.queries and operands.keys.
  void (*scores)(const float* queries, const float* keys, int64_t width,
                 int64_t rows, int64_t panels, float* scores);
  /// Adds weights times values to rows of output, output_width (a multiple of
  /// 16) apart. From one panel of keys to the next, values lie `value_panels`
  /// panels of columns apart.
  void (*add_values)(const float* weights, const float* values,
                     int64_t value_panels, int64_t rows, int64_t panels,
                     float* output, int64_t output_width);
  /// The same scores as scores(), of keys as they lie, `key_width` elements
  /// each. `queries` are packed like a panel of keys: [width][32 queries].
  /// `room` has room for a panel of keys in pairs, 0 beyond their width. Null
  /// where there is none.
  void (*scores_in_place)(const float* queries, const Bf16Rows& keys,
                          int64_t key_width, int64_t rows, float* room,
                          float* scores);
  /// Weights, as add_values() has them, times values as they lie, `width`
  /// elements each: sums for each row, `stride` apart, with room for whole
  /// kBf16InPlaceColumns. `finite`: without what is not finite. Null likewise.
  void (*sums_in_place)(const float* weights, const Bf16Rows& values,
                        int64_t width, int64_t rows, bool finite, float* sums,
                        int64_t stride);
  /// scores() of elements in two terms, exact but for the sums' roundings. A
  /// row, and a panel of keys, has `width` pairs of first terms and then as
  /// many of second ones. Null where there is none.
  void (*scores_of_two)(const float* queries, const float* keys, int64_t width,
                        int64_t rows, int64_t panels, float* scores);
  /// add_values() of weights and values in two terms, without the products of
  /// second terms. Second weights lie kBf16WeightTerm behind the first, second
  /// values value_panels / 2 panels. Null where there is none.
  void (*add_values_of_two)(const float* weights, const float* values,
                            int64_t value_panels, int64_t rows, int64_t panels,
                            float* output, int64_t output_width);
  /// Products of INT8 of the same unit. Null where it has none.
  const Int8Products* int8;
};

/// Null where the processor, the operating system or this build has none.
const Bf16Products* AmxProducts();
const Bf16Products* Avx512Bf16Products();

/// True where AVX512-BF16 multiplies faster than FP32 does: on AMD's
/// processors, twice as fast from Zen 4 on. Told by the processor's vendor, as
/// Highway does for its target AVX3_ZEN4; a measurement would not always choose
/// the same, and what is chosen decides the bits.
bool Avx512Bf16IsFast();

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_KERNELS_BF16_PRODUCTS_H_
