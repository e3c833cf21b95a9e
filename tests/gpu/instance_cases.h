#ifndef ATTENTION_TESTS_GPU_INSTANCE_CASES_H_
#define ATTENTION_TESTS_GPU_INSTANCE_CASES_H_

#include <string>
#include <vector>

#include "core/cuda/plan.h"
#include "tests/support/random_problem.h"

namespace attention::test {

/// A problem for one instance of a kernel: of one template's one set of
/// parameters, compiled on its own.
struct InstanceCase {
  /// "attend_mma_BF16_D128_rows128_options_mask": which option it has, and with
  /// "_split" that its keys are split.
  std::string name;
  /// The instance that has to be launched; part of what InstancesOf() says.
  std::string instance;
  ProblemSpec spec;
  /// The last key is beyond every length and its value NaN, for which rows are
  /// computed once more.
  bool nan_behind_lengths = false;
};

/// One for each instance of each kernel but `rearrange`, which only tensors in
/// shared memory of the device need.
std::vector<InstanceCase> InstanceCases();

/// The instances that a plan launches, but for `recompute`'s where no row needs
/// it.
std::vector<std::string> InstancesOf(const cuda::Plan& plan);

}  // namespace attention::test

#endif  // ATTENTION_TESTS_GPU_INSTANCE_CASES_H_
