#ifndef ATTENTION_BENCHMARKS_MACHINE_LIMITS_H_
#define ATTENTION_BENCHMARKS_MACHINE_LIMITS_H_

#include <cstdint>

namespace attention::bench {

/// Floating-point operations per second that `threads` threads reach with FP32
/// multiply-adds in registers alone (an FMA counts as two), measured for about
/// `seconds`: the best of several short stretches.
double PeakFlops(int threads, double seconds);

/// Bytes per second that `threads` threads read from memory, together, out of
/// 1 GiB that the first call allocates, as a Tensor, and fills; the best pass
/// in about `seconds`. A last-level cache near that size makes it faster than
/// memory.
double ReadRate(int threads, double seconds);

/// The instruction set of both: "AVX3", "AVX2", ...
const char* LimitsTarget();

}  // namespace attention::bench

#endif  // ATTENTION_BENCHMARKS_MACHINE_LIMITS_H_
