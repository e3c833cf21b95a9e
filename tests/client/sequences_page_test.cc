// The lines of C++ in docs/inference-protocol.md: they compile as they stand
// there, and answer.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attention_client/client.h"
#include "tests/client/held_server.h"

namespace attention {
namespace {

#include "sequences_code.inc"

// All keys are alike, so every query sees the mean of the values.
Tensor Filled(Shape shape, float value) {
  Tensor tensor = *Tensor::Create(DataType::kFloat32, shape);
  return Tensor::FromFloats(
      std::move(shape),
      std::vector<float>(static_cast<size_t>(tensor.element_count()), value));
}

TEST(SequencesPageTest, APromptAndAStepGiveTheMeanOfAllValues) {
  const auto server = client::StartServer();
  const auto client = client::Client::Create({.target = server->address()});
  const auto name =
      Prefill(*client, Filled({8, 3, 64}, 1), Filled({8, 3, 64}, 4));
  ASSERT_TRUE(name.ok()) << name.status();
  const auto output =
      Step(*client, *name, 3, Filled({1, 32, 1, 64}, 1),
           {Filled({1, 8, 1, 64}, 1), Filled({1, 8, 1, 64}, 8)});
  ASSERT_TRUE(output.ok()) << output.status();
  EXPECT_EQ(output->ToFloats(), std::vector<float>(2048, 5));
}

TEST(SequencesPageTest, AStepOfNoSequenceHasTheServersError) {
  const auto server = client::StartServer();
  const auto client = client::Client::Create({.target = server->address()});
  const auto output =
      Step(*client, "no", 3, Filled({1, 32, 1, 64}, 1),
           {Filled({1, 8, 1, 64}, 1), Filled({1, 8, 1, 64}, 8)});
  EXPECT_EQ(output.status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace attention
