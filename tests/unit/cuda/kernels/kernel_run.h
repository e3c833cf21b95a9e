#ifndef ATTENTION_TESTS_UNIT_CUDA_KERNELS_KERNEL_RUN_H_
#define ATTENTION_TESTS_UNIT_CUDA_KERNELS_KERNEL_RUN_H_

#include <cstdint>
#include <string>

#include "core/cuda/kernels/kernel_table.h"
#include "core/datatype.h"
#include "core/problem.h"
#include "tests/support/random_problem.h"
#include "tests/support/results.h"

namespace attention::cuda::test {

/// Which kernels a problem goes through.
enum class Way : uint8_t {
  kAttend,  // attend, weights, recompute
  kMma,     // attend_mma in its place
  kGemm,    // softmax_rows between QK and PV, FP32
};
/// For names of tests.
std::string NameOf(Way way);

/// A spec as a way computes it: tensor cores have 16 bits (those given, where
/// it has 32), leave no weights, and do not serve a scale of 0 (ServesMma()),
/// but any that is too small for FP32.
attention::test::ProblemSpec FittedTo(Way way,
                                      attention::test::ProblemSpec spec,
                                      DataType sixteen_bits);

struct RunOptions {
  Way way = Way::kAttend;
  /// All heads that read the same keys share tiles; else none.
  bool shares_tiles = false;
  /// Keys of a split; 0: they are not split.
  int64_t keys_per_split = 0;
  /// Keys of a page, of a problem with one batch entry and no weights, which
  /// then goes through the kernels for several entries; 0: in one piece.
  int64_t keys_per_page = 0;
};

/// What became of a problem.
struct KernelResults {
  attention::test::Results results;
  int64_t marked_rows = 0;  // that `recompute` was to look at
};

/// Runs a valid problem with at least one row and one key on the emulated
/// kernels, with no more memory than they were promised.
KernelResults RunKernels(const AttentionProblem& problem,
                         const RunOptions& options = {});

}  // namespace attention::cuda::test

#endif  // ATTENTION_TESTS_UNIT_CUDA_KERNELS_KERNEL_RUN_H_
