#ifndef ATTENTION_CORE_CPU_KERNELS_KERNELS_H_
#define ATTENTION_CORE_CPU_KERNELS_KERNELS_H_

#include <cstdint>

#include "core/cpu/kernels/arguments.h"
#include "core/cpu/kernels/tile_args.h"

namespace attention::cpu {

/// The vector kernels of one instruction set.
struct Kernels {
  const char* name;
  int64_t lanes;
  int64_t micro_rows;  // rows that one pass of QK computes
  bool reads_half;     // the processor converts FP16 by itself
  /// Products of BF16 that this processor has and that are to be used; null for
  /// none.
  const Bf16Products* bf16;

  /// Widens rows to FP32, `to_stride` floats apart, padded with zeros up to
  /// `padded_width`.
  void (*widen_rows)(const RowSource& from, int64_t rows, int64_t width,
                     float* to, int64_t to_stride, int64_t padded_width);
  /// Rows of queries into micro-tiles of [width][rows of it].
  void (*pack_queries)(const float* rows, int64_t stride, int64_t count,
                       int64_t width, float factor, float* packed);
  /// Rows of keys into panels of [width][two vectors], padded with zeros.
  void (*pack_keys)(const float* rows, int64_t stride, int64_t count,
                    int64_t width, float* packed);
  void (*project)(const ProjectArgs& args);
  void (*centre_rows)(const CentreArgs& args);
  /// Of all magnitudes; NaN where one is. 0 for none.
  float (*largest_magnitude)(const float* values, int64_t count);
  /// to[i] = e^(2 from[i]), for magnitudes up to 40; count is a multiple of the
  /// lanes.
  void (*exp_twice)(const float* from, int64_t count, float* to);
  /// e^(2 from[i]) as to[2 i] * 2^to[2 i + 1], for any number; likewise.
  void (*exp_twice_wide)(const float* from, int64_t count, float* to);

  /// QK of packed operands alone: adds scores before the epilogue to
  /// args.packed.partial, or stores them there where `first`.
  void (*add_partial_scores)(const TileArgs& args, bool first);
  /// Adds a tile of keys to its rows' softmax states and weighted values.
  void (*attend_tile)(const TileArgs& args);
  /// Computes the weights of a tile, and stores those that are asked for.
  void (*store_weights)(const TileArgs& args, const WeightArgs& weights);
  /// Stores the scores of a tile, for the keys that rows' ranges leave.
  void (*store_scores)(const TileArgs& args, const ScoreArgs& scores);
  /// A small problem's head. False, and the output undefined, where a result is
  /// not finite.
  bool (*attend_small)(const SmallArgs& args);
  void (*finish_rows)(const FinishArgs& args);
  /// to[i] = from[i] * factor, past the caches where `to` allows it.
  void (*scale_row)(const float* from, int64_t count, double factor, float* to);

  /// Copies rows of BF16 (a pair in the place of a float, `to_stride` pairs
  /// apart, zeros beyond `width` and from row `rows` to `padded_rows`).
  void (*copy_bf16)(const RowSource& from, int64_t rows, int64_t padded_rows,
                    int64_t width, float* to, int64_t to_stride);
  /// The same of INT8 and FP8, without padding rows. An element takes of its
  /// row's scale a power of two, and `scales` of each row what is left, so that
  /// neither passes FP32's range where their product does not.
  void (*copy_bytes_as_bf16)(const RowSource& from, int64_t rows, int64_t width,
                             float* to, int64_t to_stride, float* scales);
  /// copy_bf16() of FP16 in two terms of BF16: of a row's `to_stride` pairs the
  /// first half are first terms, the others second ones.
  void (*split_fp16)(const RowSource& from, int64_t rows, int64_t padded_rows,
                     int64_t width, float* to, int64_t to_stride);
  /// Packs such rows of keys in panels of 32.
  void (*pack_bf16_keys)(const float* rows, int64_t stride, int64_t count,
                         int64_t width, float* packed);
  /// Packs rows of values for PV, each where it begins, its `width` elements
  /// side by side: panels of 32 columns, and of keys, padded with 0. 0 takes
  /// the place of what is not finite; false where something is not.
  bool (*pack_bf16_values)(const unsigned char* const* rows, int64_t count,
                           int64_t width, int64_t panels, float* packed);
  /// The same of FP16 in two terms, each in `panels` panels of columns.
  bool (*pack_fp16_values)(const unsigned char* const* rows, int64_t count,
                           int64_t width, int64_t panels, float* packed);
};

/// Bits of hwy's target masks that this build has kernels for and this
/// processor can run, best first; ends with 0.
const int64_t* AvailableTargets();
/// The kernels of one of them.
const Kernels& KernelsOf(int64_t target);

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_KERNELS_KERNELS_H_
