// Random problems over the wire, on servers of every backend by its name: what
// comes back is what the oracle says, and to the bit what the engine gives in
// the same process.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/connected_server.h"
#include "tests/support/factors.h"
#include "tests/support/random.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tolerance.h"
#include "tests/support/wire_problem.h"

namespace attention::test {
namespace {

OwnedProblem ProblemOfRow(size_t row) {
  return MakeProblem(SpecOf(FactorRows()[row]), TestSeed() + row);
}

class WireTest : public ::testing::Test {
 protected:
  void StartServer(const std::string& backend) {
    auto server = ConnectedServer::Start(ConnectedServer::Options(backend));
    ASSERT_THAT(server, IsOk());
    server_.emplace(*std::move(server));
  }

  void Check(const AttentionProblem& problem) const {
    ASSERT_OK_AND_ASSIGN(const Results results,
                         AttendOver(server_->client(), problem));
    EXPECT_TRUE(Matches(problem, results));
  }

  std::optional<ConnectedServer> server_;
};

// Parameter: backend, row of the covering array.
class WirePairwiseTest
    : public WireTest,
      public ::testing::WithParamInterface<std::tuple<std::string, size_t>> {};

TEST_P(WirePairwiseTest, MatchesTheOracle) {
  const auto& [backend, row] = GetParam();
  ASSERT_NO_FATAL_FAILURE(StartServer(backend));
  SCOPED_TRACE(absl::StrCat("ATTENTION_TEST_SEED=", TestSeed()));
  SCOPED_TRACE(Describe(FactorRows()[row]));
  Check(ProblemOfRow(row).problem);
}

INSTANTIATE_TEST_SUITE_P(
    Wire, WirePairwiseTest,
    ::testing::Combine(::testing::ValuesIn(Backends()),
                       ::testing::Range(size_t{0}, FactorRows().size(),
                                        size_t{5})),
    [](const auto& param) {
      return absl::StrCat(std::get<0>(param.param), "_row",
                          std::get<1>(param.param));
    });

// Parameter: backend.
class WireDifferentialTest : public WireTest,
                             public ::testing::WithParamInterface<std::string> {
 protected:
  void SetUp() override { StartServer(GetParam()); }
};

INSTANTIATE_TEST_SUITE_P(Backends, WireDifferentialTest,
                         ::testing::ValuesIn(Backends()),
                         [](const auto& param) { return param.param; });

TEST_P(WireDifferentialTest, TheWireChangesNoBit) {
  const auto engine = MakeEngine(GetParam(), /*threads=*/1);
  for (size_t row = 0; row < FactorRows().size(); row += 3) {
    SCOPED_TRACE(Describe(FactorRows()[row]));
    OwnedProblem owned = ProblemOfRow(row);
    ASSERT_OK_AND_ASSIGN(const Results wire,
                         AttendOver(server_->client(), owned.problem));
    // On the wire, keys and values are one block.
    const client::AttendRequest request = ToRequest(owned.problem);
    KeyValueBlock whole = {.key = request.key.view(),
                           .value = request.value.view()};
    if (request.key_scale) {
      whole.key_scale = request.key_scale->view();
      whole.value_scale = request.value_scale->view();
    }
    owned.problem.key_value.clear();
    owned.problem.key_value.push_back(whole);
    ASSERT_OK_AND_ASSIGN(const Results here, RunOn(*engine, owned.problem));
    EXPECT_TRUE(SameBits(wire, here));
  }
}

TEST_P(WireDifferentialTest, OneStreamOfAllProblems) {
  std::vector<OwnedProblem> problems;
  std::vector<client::AttendRequest> requests;
  for (size_t row = 0; row < FactorRows().size(); ++row) {
    problems.push_back(ProblemOfRow(row));
    requests.push_back(ToRequest(problems.back().problem));
  }
  std::vector<int> replies(requests.size(), 0);
  const absl::Status status = server_->client().AttendMany(
      requests, [&](size_t row, absl::StatusOr<client::AttendResult> reply) {
        SCOPED_TRACE(Describe(FactorRows().at(row)));
        ++replies.at(row);
        ASSERT_THAT(reply, IsOk());
        EXPECT_TRUE(
            Matches(problems[row].problem, ToResults(*std::move(reply))));
      });
  EXPECT_THAT(status, IsOk());
  EXPECT_THAT(replies, ::testing::Each(1));
}

TEST_P(WireDifferentialTest, EmptyTensors) {
  Check(MakeProblem({.batch = 0}, TestSeed()).problem);
  Check(MakeProblem({.query_length = 0}, TestSeed()).problem);
  Check(MakeProblem({.key_length = 0}, TestSeed()).problem);
  Check(MakeProblem({.value_width = 0}, TestSeed()).problem);
}

}  // namespace
}  // namespace attention::test
