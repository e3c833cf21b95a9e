// The server, over loopback, against what MXNet, PyTorch, TensorFlow, JAX and
// MLX computed: one test per framework, case and backend, made from the files
// themselves. Every backend by its name, not auto's choice: what auto falls
// back on must agree as well, and what it tries first is one of them. This file
// has a main() of its own, because the tests are known only then.

#include <iostream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/parity/golden_cases.h"
#include "tests/support/connected_server.h"
#include "tests/support/oracle.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_data.h"
#include "tests/support/tolerance.h"
#include "tests/support/wire_problem.h"

namespace attention::test {
namespace {

class GoldenTest : public ::testing::Test {
 public:
  GoldenTest(const GoldenCase& golden, std::string backend)
      : golden_(golden), backend_(std::move(backend)) {}

  void TestBody() override {
    ASSERT_OK_AND_ASSIGN(const AttentionProblem problem,
                         GoldenProblem(golden_));
    ASSERT_OK_AND_ASSIGN(
        const ConnectedServer server,
        ConnectedServer::Start(ConnectedServer::Options(backend_)));
    ASSERT_OK_AND_ASSIGN(const Results results,
                         AttendOver(server.client(), problem));
    EXPECT_EQ(results.output.shape(), golden_.tensors.at("output").shape());
    std::vector<double> weights;
    if (problem.wanted.weights) {
      ASSERT_TRUE(results.weights.has_value());
      EXPECT_EQ(results.weights->shape(),
                golden_.tensors.at("weights").shape());
      weights = results.weights->ToDoubles();
    }
    EXPECT_TRUE(MatchesGolden(golden_, ComputeExpected(problem),
                              results.output.ToDoubles(), weights));
  }

 private:
  const GoldenCase& golden_;
  const std::string backend_;
};

std::string SuiteOf(const std::string& framework) {
  return absl::StrCat("Goldens/", framework);
}

void RegisterGoldenTest(const GoldenCase& golden, const std::string& name,
                        const std::string& backend) {
// GoogleTest's registry keeps the factory that it makes here; the analyzer does
// not see into it and reports a leak.
#ifndef __clang_analyzer__
  ::testing::RegisterTest(SuiteOf(golden.framework).c_str(), name.c_str(),
                          nullptr, nullptr, __FILE__, __LINE__,
                          [&golden, backend]() -> GoldenTest* {
                            return new GoldenTest(golden, backend);
                          });
#else
  (void)golden, (void)name, (void)backend;
#endif
}

void RegisterGoldenTests(const std::vector<GoldenCase>& cases) {
  for (const GoldenCase& golden : cases) {
    for (const std::string& backend : Backends()) {
      RegisterGoldenTest(golden, absl::StrCat(golden.name, "/", backend),
                         backend);
    }
  }
}

std::set<std::string> RegisteredTests() {
  std::set<std::string> names;
  const ::testing::UnitTest& all = *::testing::UnitTest::GetInstance();
  for (int s = 0; s < all.total_test_suite_count(); ++s) {
    const ::testing::TestSuite& suite = *all.GetTestSuite(s);
    for (int t = 0; t < suite.total_test_count(); ++t) {
      names.insert(
          absl::StrCat(suite.name(), ".", suite.GetTestInfo(t)->name()));
    }
  }
  return names;
}

// A case is tested on every backend.
void ExpectTestsOf(const std::string& framework, const std::string& name,
                   const std::set<std::string>& tests) {
  const std::string test = absl::StrCat(SuiteOf(framework), ".", name);
  for (const std::string& backend : Backends()) {
    EXPECT_EQ(tests.count(absl::StrCat(test, "/", backend)), 1U)
        << test << " on " << backend;
  }
}

TEST(GoldenFilesTest, EveryTensorOfEveryFileBelongsToATest) {
  const std::set<std::string> tests = RegisteredTests();
  for (const char* const file :
       {"jax", "minilm_layer3", "mlx", "mxnet", "pytorch", "tensorflow"}) {
    ASSERT_OK_AND_ASSIGN(const SafetensorsFile contents,
                         ReadTestData(absl::StrCat(file, ".safetensors")));
    EXPECT_FALSE(contents.tensors.empty()) << file;
    for (const auto& [name, tensor] : contents.tensors) {
      const size_t slash = name.rfind('/');
      ExpectTestsOf(file,
                    slash == std::string::npos ? "all" : name.substr(0, slash),
                    tests);
    }
  }
}

TEST(GoldenFilesTest, EveryFrameworkHasEveryCase) {
  const std::set<std::string> tests = RegisteredTests();
  const auto expect = [&tests](const char* framework, const char* name) {
    ExpectTestsOf(framework, name, tests);
  };
  for (const char* const framework :
       {"mxnet", "pytorch", "tensorflow", "jax", "mlx"}) {
    for (const char* const name :
         {"masked_softmax/empty_row", "masked_softmax/odd_1d",
          "masked_softmax/odd_2d", "masked_softmax/toy_1d",
          "masked_softmax/toy_2d", "masked_softmax/toy_none", "additive/odd",
          "additive/toy", "bilinear/odd", "gaussian/odd", "gaussian/toy",
          "dot_product/binary_mask", "dot_product/no_mask",
          "dot_product/random_mask", "dot_product/toy",
          "dot_product/valid_lens_2d", "dot_product/wide"}) {
      expect(framework, name);
    }
  }
  for (const char* const framework : {"pytorch", "jax", "mlx"}) {
    for (const char* const name :
         {"multi_head/bias", "multi_head/causal", "multi_head/grouped_query"}) {
      expect(framework, name);
    }
  }
  expect("jax", "multi_head/sliding_window");
  expect("minilm_layer3", "all");
}

}  // namespace
}  // namespace attention::test

int main(int argc, char** argv) {
  ::testing::InitGoogleMock(&argc, argv);
  const auto cases = attention::test::LoadGoldenCases();
  if (!cases.ok()) {
    std::cerr << "cannot read tests/data: " << cases.status() << "\n";
    return 1;
  }
  attention::test::RegisterGoldenTests(*cases);
  return RUN_ALL_TESTS();
}
