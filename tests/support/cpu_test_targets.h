#ifndef ATTENTION_TESTS_SUPPORT_CPU_TEST_TARGETS_H_
#define ATTENTION_TESTS_SUPPORT_CPU_TEST_TARGETS_H_

#include <memory>
#include <string>
#include <vector>

#include "core/backend.h"

namespace attention::test {

/// What the cpu backend is tested on: every instruction set of this processor
/// (CpuTargets()), and instruction sets with emulated products of BF16:
/// "AVX2_AMX_EMULATED" and the like. Those of AMX come with the widest vectors
/// that there are, those of AVX512-BF16 with the narrowest.
std::vector<std::string> CpuTestTargets();

/// Every instruction set that multiplies BF16, each emulation with vectors of
/// every width.
std::vector<std::string> Bf16TestTargets();

/// The backend on one of them.
std::unique_ptr<Backend> MakeCpuTestBackend(const std::string& target);

}  // namespace attention::test

#endif  // ATTENTION_TESTS_SUPPORT_CPU_TEST_TARGETS_H_
