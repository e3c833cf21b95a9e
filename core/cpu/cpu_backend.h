#ifndef ATTENTION_CORE_CPU_CPU_BACKEND_H_
#define ATTENTION_CORE_CPU_CPU_BACKEND_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/backend.h"

namespace attention {

namespace cpu {
struct Kernels;
}

/// The environment variable that names the instruction set.
inline constexpr char kCpuTargetVariable[] = "ATTENTION_CPU_TARGET";

/// The instruction sets that MakeCpuBackend() takes on this processor, best
/// first: "AVX3_AMX" (the next one with products of BF16 by AMX), "AVX3"
/// (AVX-512), "AVX3_BF16" (with those of AVX512-BF16; before "AVX3" on AMD's
/// processors), "AVX2", "SSE4", "NEON". Empty on a processor that this build
/// has no kernels for.
std::vector<std::string> CpuTargets();

/// The fast backend for a machine without a GPU: fused kernels that never hold
/// a score matrix, compiled for every instruction set and chosen at run time.
/// FP32 inside, whatever the values (core/cpu/README.md). With "_AMX" or
/// "_BF16" a scaled dot product of BF16 tensors and many queries multiplies
/// BF16 (weights rounded to it, sums in FP32), and its kernel is "bf16_amx" or
/// "bf16_avx512", not "fp32_tiles". With "_AMX" one of FP16 tensors multiplies
/// two BF16 numbers in the place of each, which loses nothing of a score, and
/// its kernel is "fp16_amx". Below 2 MiB of scratch per thread, at any
/// length, unless rows are wider than some thousands of elements.
///
/// `target` is one of CpuTargets(); empty means the environment variable
/// ATTENTION_CPU_TARGET, and where that is not set the best one.
/// INVALID_ARGUMENT says what it was, where it came from and the targets that
/// there are, where it is another; UNAVAILABLE where there is none.
absl::StatusOr<std::unique_ptr<Backend>> MakeCpuBackend(
    const std::string& target = "");

/// The same on kernels (core/cpu/targets.h) that outlive it: tests put together
/// some that CpuTargets() does not have.
std::unique_ptr<Backend> MakeCpuBackend(const cpu::Kernels& kernels);

}  // namespace attention

#endif  // ATTENTION_CORE_CPU_CPU_BACKEND_H_
