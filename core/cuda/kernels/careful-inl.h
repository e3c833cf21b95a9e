#ifndef ATTENTION_CORE_CUDA_KERNELS_CAREFUL_INL_H_
#define ATTENTION_CORE_CUDA_KERNELS_CAREFUL_INL_H_

// Rows that FP32 does not serve, in FP64 and with the reference's meaning of
// every option: a value of a key that takes no part is left out, not multiplied
// by 0. For few rows, so it keeps to plain loops.

#include "core/cuda/kernels/mask-inl.h"
#include "core/cuda/kernels/philox-inl.h"
#include "core/cuda/kernels/rows-inl.h"

namespace attention::cuda {

ATTENTION_KERNEL_CODE double WideInfinity() { return double{Infinity()}; }

/// One row on its way.
struct CarefulRow {
  int64_t batch;
  int64_t head;
  int64_t query;
  int64_t result_row;
  KeySpan span;
  double max;
  double sum;
};

/// In place of the weight of a key that takes no part or is dropped: its value
/// is not even multiplied by 0.
inline constexpr double kLeftOut = -1;

struct CarefulMemory {
  double* scores;   // [kCarefulThreads], then exponentials
  double* weights;  // [kCarefulThreads], after dropout, or kLeftOut
};

/// Scores beyond FP32's range follow FP32 arithmetic: they are infinite.
ATTENTION_KERNEL_CODE double LimitToFloatRange(double score) {
  constexpr double kMost = FLT_MAX;
  if (score > kMost) return WideInfinity();
  if (score < -kMost) return -WideInfinity();
  return score;
}

/// Without factor.
ATTENTION_KERNEL_CODE double SumOfTerms(const AttentionArgs& args,
                                        const CarefulRow& row, int64_t key) {
  const int64_t width = args.key.width;
  const int64_t q = row.result_row * width;
  const int64_t k =
      RowsBegin(args, args.key, row.batch, row.head) + key * width;
  const float* const tanh_weights =
      args.tanh_weights + row.head * args.tanh_weight_stride;
  double sum = 0;
  for (int64_t i = 0; i < width; ++i) {
    const double a = LoadDouble(args.query.data, args.query.type, q + i);
    const double b = LoadDouble(args.key.data, args.key.type, k + i);
    if (args.score == Score::kDot) {
      sum += a * b;
    } else if (args.score == Score::kGaussian) {
      sum += (a - b) * (a - b);
    } else {
      sum += tanh_weights[i] * tanh(a + b);
    }
  }
  return sum;
}

/// -inf where the key takes no part.
ATTENTION_KERNEL_CODE double CarefulScore(const AttentionArgs& args,
                                          const CarefulRow& row, int64_t key) {
  if (key < row.span.begin || key >= row.span.end) return -WideInfinity();
  if (args.attend_mask.data != nullptr) {
    const auto* const mask =
        static_cast<const uint8_t*>(args.attend_mask.data) +
        RowOffset(args.attend_mask, row.batch, row.head, row.query);
    if (mask[key * args.attend_mask.stride_j] == 0) return -WideInfinity();
  }
  double bias = 0;
  if (args.bias.data != nullptr) {
    bias = LoadDouble(args.bias.data, args.bias.type,
                      RowOffset(args.bias, row.batch, row.head, row.query) +
                          key * args.bias.stride_j);
    if (bias == -WideInfinity()) return bias;
  }
  const double factor = args.score == Score::kAdditive ? 1.0 : args.factor;
  double score = LimitToFloatRange(factor * SumOfTerms(args, row, key));
  if (args.softcap != 0) score = args.softcap * tanh(score / args.softcap);
  return LimitToFloatRange(score + bias);
}

ATTENTION_KERNEL_CODE bool IsKept(const AttentionArgs& args,
                                  const CarefulRow& row, int64_t key) {
  return args.dropout.active == 0 ||
         !IsDropped(args.dropout, row.batch, row.head, row.query, key);
}

ATTENTION_KERNEL_CODE double KeptFactor(const AttentionArgs& args) {
  return args.dropout.active != 0 ? args.dropout.kept : 1.0;
}

/// sum + weights * the column's values of a tile's keys.
ATTENTION_KERNEL_CODE double AddCarefulValues(
    const AttentionArgs& args, const CarefulRow& row, int64_t first_key,
    int64_t count, int64_t column, const double* weights, double sum) {
  if (column >= args.value.width) return sum;
  const int64_t begin = RowsBegin(args, args.value, row.batch, row.head) +
                        first_key * args.value.width + column;
  for (int64_t j = 0; j < count; ++j) {
    if (weights[j] == kLeftOut) continue;
    sum += weights[j] * LoadDouble(args.value.data, args.value.type,
                                   begin + j * args.value.width);
  }
  return sum;
}

/// The row's softmax and, of one column per thread, its weighted values.
ATTENTION_KERNEL_CODE double SweepCarefulKeys(const AttentionArgs& args,
                                              int64_t column,
                                              const CarefulMemory& memory,
                                              CarefulRow& row) {
  double result = 0;
  row.max = -WideInfinity();
  row.sum = 0;
  const int thread = ThreadIndex();
  for (int64_t first = row.span.begin; first < row.span.end;
       first += kCarefulThreads) {
    const int64_t count = Least(kCarefulThreads, row.span.end - first);
    const double score = CarefulScore(args, row, first + thread);
    SyncBlock();
    memory.scores[thread] = score;
    SyncBlock();
    double max = row.max;
    for (int64_t j = 0; j < count; ++j) {
      if (memory.scores[j] > max) max = memory.scores[j];
    }
    const double base = max == -WideInfinity() ? 0.0 : max;
    const double factor = exp(row.max - base);
    SyncBlock();
    const bool absent = score == -WideInfinity();
    const double weight = absent ? 0.0 : exp(score - base);
    memory.scores[thread] = weight;
    memory.weights[thread] =
        !absent && IsKept(args, row, first + thread) ? weight : kLeftOut;
    SyncBlock();
    row.max = max;
    row.sum *= factor;
    for (int64_t j = 0; j < count; ++j) row.sum += memory.scores[j];
    result = AddCarefulValues(args, row, first, count, column, memory.weights,
                              result * factor);
  }
  return result;
}

/// A column of the mean of all values, those of masked keys too.
ATTENTION_KERNEL_CODE double AverageValues(const AttentionArgs& args,
                                           int64_t column,
                                           const CarefulMemory& memory,
                                           const CarefulRow& row) {
  double result = 0;
  const int thread = ThreadIndex();
  for (int64_t first = 0; first < args.key_length; first += kCarefulThreads) {
    SyncBlock();
    memory.weights[thread] = IsKept(args, row, first + thread)
                                 ? 1 / static_cast<double>(args.key_length)
                                 : kLeftOut;
    SyncBlock();
    result = AddCarefulValues(args, row, first,
                              Least(kCarefulThreads, args.key_length - first),
                              column, memory.weights, result);
  }
  return result;
}

ATTENTION_KERNEL_CODE bool IsAveraged(const AttentionArgs& args,
                                      const CarefulRow& row) {
  return row.sum == 0 && args.uniform_empty_rows != 0 && args.key_length > 0;
}

/// FP64 on its way to a narrower type is rounded once: to odd first where the
/// type is narrower than FP32 (Boldo and Melquiond, "Emulation of FMA and
/// correctly rounded sums", 2008).
ATTENTION_KERNEL_CODE float RoundToOdd(double value) {
  const auto nearest = static_cast<float>(value);
  if (double{nearest} == value || !IsFinite(nearest)) return nearest;
  const uint32_t bits = FloatToBits(nearest);
  if ((bits & 1U) != 0) return nearest;
  const bool is_below = fabs(double{nearest}) < fabs(value);
  return BitsToFloat(is_below ? bits + 1 : bits - 1);
}

ATTENTION_KERNEL_CODE void StoreCarefulColumn(const AttentionArgs& args,
                                              const CarefulRow& row,
                                              int64_t column, double sum) {
  if (column >= args.value.width) return;
  const double divisor = row.sum == 0 ? 1.0 : row.sum;
  const double result = sum / divisor * KeptFactor(args);
  const bool narrow = args.output_type != Element::kFloat32;
  StoreOutput(args, row.result_row * args.value.width + column,
              narrow ? RoundToOdd(result) : static_cast<float>(result));
}

ATTENTION_KERNEL_CODE double CarefulWeight(const AttentionArgs& args,
                                           const CarefulRow& row, int64_t key) {
  double weight = 0;
  if (row.sum == 0) {
    if (!IsAveraged(args, row)) return 0;
    weight = 1 / static_cast<double>(args.key_length);
  } else {
    const double score = CarefulScore(args, row, key);
    if (score == -WideInfinity()) return 0;
    weight = exp(score - row.max) / row.sum;
  }
  if (args.weights_after_dropout == 0 || args.dropout.active == 0) {
    return weight;
  }
  return weight * (IsKept(args, row, key) ? args.dropout.kept : 0.0);
}

/// The block computes one row.
ATTENTION_KERNEL_CODE void ComputeCarefulRow(const AttentionArgs& args,
                                             const CarefulMemory& memory,
                                             int64_t result_row) {
  CarefulRow row;
  row.result_row = result_row;
  row.query = result_row % args.query_length;
  row.head = result_row / args.query_length % args.query_heads;
  row.batch = result_row / args.query_length / args.query_heads;
  row.span = SpanOf(args, row.batch, row.query);
  int64_t first_column = 0;
  do {
    const int64_t column = first_column + ThreadIndex();
    double sum = SweepCarefulKeys(args, column, memory, row);
    if (IsAveraged(args, row)) {
      sum = AverageValues(args, column, memory, row);
    }
    StoreCarefulColumn(args, row, column, sum);
    first_column += kCarefulThreads;
  } while (first_column < args.value.width);
  if (args.lse != nullptr && ThreadIndex() == 0) {
    args.lse[result_row] =
        row.sum == 0 ? -Infinity() : static_cast<float>(row.max + log(row.sum));
  }
  if (args.weights == nullptr) return;
  for (int64_t key = ThreadIndex(); key < args.key_length;
       key += kCarefulThreads) {
    args.weights[result_row * args.key_length + key] =
        static_cast<float>(CarefulWeight(args, row, key));
  }
}

ATTENTION_KERNEL_CODE void Careful(const AttentionArgs& args, int64_t block) {
  CarefulMemory memory;
  memory.scores = reinterpret_cast<double*>(SharedMemory());
  memory.weights = memory.scores + kCarefulThreads;
  const int64_t first = block * kCarefulRows;
  const int64_t end = Least(first + kCarefulRows, ResultRows(args));
  for (int64_t row = first; row < end; ++row) {
    if (args.careful_rows != nullptr && args.careful_rows[row] == 0) continue;
    ComputeCarefulRow(args, memory, row);
  }
}

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_KERNELS_CAREFUL_INL_H_
