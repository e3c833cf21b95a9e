#ifndef ATTENTION_TESTS_BENCHMARKS_MACHINE_LIMITS_H_
#define ATTENTION_TESTS_BENCHMARKS_MACHINE_LIMITS_H_

#include <cstdint>

namespace attention::bench {

/// Multiplies and adds in registers alone: `rounds` times as many vector
/// operations as keep one core busy. Returns the floating-point operations that
/// were done; `sink` takes a result, so that none is left out.
double MultiplyAdds(int64_t rounds, float* sink);

/// Reads `count` floats, once, in order, with every vector unit of one core.
void ReadAll(const float* data, int64_t count, float* sink);

/// The instruction set of both: "AVX3", "AVX2", ...
const char* LimitsTarget();

}  // namespace attention::bench

#endif  // ATTENTION_TESTS_BENCHMARKS_MACHINE_LIMITS_H_
