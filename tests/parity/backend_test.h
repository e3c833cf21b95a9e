#ifndef ATTENTION_TESTS_PARITY_BACKEND_TEST_H_
#define ATTENTION_TESTS_PARITY_BACKEND_TEST_H_

#include <memory>
#include <string>
#include <vector>

#include "core/element.h"
#include "core/validate.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/owned_problem.h"
#include "tests/support/random_problem.h"
#include "tests/support/results.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tolerance.h"

namespace attention::test {

/// Backends of devices leave some problems to the next one.
inline bool IsDevice(const std::string& backend) {
  return backend.starts_with("cuda");
}
inline std::vector<std::string> HostBackends() {
  std::vector<std::string> names = Backends();
  std::erase_if(names, IsDevice);
  return names;
}

/// A test that runs once for every backend of the build.
class BackendTest : public ::testing::TestWithParam<std::string> {
 protected:
  const Engine& engine() const { return *engine_; }

  absl::StatusOr<Results> Run(const AttentionProblem& problem) const {
    return RunOn(*engine_, problem);
  }

  /// Runs a problem and compares it with the oracle.
  void Check(const AttentionProblem& problem) const {
    ASSERT_OK_AND_ASSIGN(const Results results, Run(problem));
    EXPECT_TRUE(Matches(problem, results));
  }

 private:
  const std::unique_ptr<Engine> engine_ = MakeEngine(GetParam());
};

/// One element of a view, widened.
inline double ElementOf(const TensorView& view,
                        absl::Span<const int64_t> index) {
  return LoadElement(view.type, ElementAddress(view, index));
}

}  // namespace attention::test

#define INSTANTIATE_FOR_BACKENDS(suite)                 \
  INSTANTIATE_TEST_SUITE_P(                             \
      Backends, suite, ::testing::ValuesIn(Backends()), \
      [](const auto& parameter) { return parameter.param; })

#endif  // ATTENTION_TESTS_PARITY_BACKEND_TEST_H_
