// Parameters and options that the server has under a name, against the same
// ones in the request.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "tests/service/gated_server.h"
#include "tests/service/requests.h"
#include "tests/service/tiny_problem.h"
#include "tests/service/wire_client.h"
#include "tests/support/model_folders.h"
#include "tests/support/status_matchers.h"

namespace attention::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const Rows kWq = {{0.5, -1, 0.25}, {1, 0.5, -0.75}};
const Rows kWk = {{-0.5, 0.25, 1}, {0.75, 1, -0.25}};
const Vector kWv = {1.5, -2, 0.5};
const Rows kM = {{1, -0.5}, {0.25, 2}};

Rows Transposed(const Rows& rows) {
  Rows columns(rows[0].size(), Vector(rows.size()));
  for (size_t i = 0; i < rows.size(); ++i) {
    for (size_t j = 0; j < rows[i].size(); ++j) columns[j][i] = rows[i][j];
  }
  return columns;
}

Tensor Matrix(const Rows& rows) {
  std::vector<float> values;
  for (const Vector& row : rows) {
    values.insert(values.end(), row.begin(), row.end());
  }
  return Tensor::FromFloats(
      {static_cast<int64_t>(rows.size()), static_cast<int64_t>(rows[0].size())},
      values);
}

class ParameterSetTest : public testing::Test {
 protected:
  // Starts the server; the folders are what was added before.
  WireClient& Client() {
    if (client_ == nullptr) {
      server::ServerOptions options = TestOptions();
      options.model_repository = folders_.path();
      server_ = StartServer(options);
      client_ = std::make_unique<WireClient>(server_->address());
    }
    return *client_;
  }

  void AddAdditive(const std::string& layout) {
    const bool linear = layout == "output_by_input";
    const std::string entry = R"({"layout": ")" + layout + "\"}";
    folders_.Add("a",
                 R"({"scoring": "additive", "parameters": {"w_q": )" + entry +
                     R"(, "w_k": )" + entry + R"(, "w_v": )" + entry + "}}",
                 {{"w_q", Matrix(linear ? Transposed(kWq) : kWq)},
                  {"w_k", Matrix(linear ? Transposed(kWk) : kWk)},
                  {"w_v", Matrix(linear ? Rows{kWv} : Transposed({kWv}))}});
  }

  void AddBilinear(const std::string& layout, const std::string& options = "") {
    folders_.Add(
        "b",
        R"({"scoring": "bilinear", "parameters": {"m": {"layout": ")" + layout +
            R"("}}, "options": {)" + options + "}}",
        {{"m", Matrix(layout == "output_by_input" ? Transposed(kM) : kM)}});
  }

  // The answer to the tiny request with what `change` does to it.
  absl::StatusOr<v1::AttendResponse> Attend(
      const std::function<void(v1::AttendRequest&)>& change) {
    v1::AttendRequest request = TinyRequest();
    change(request);
    return Client().Attend(request);
  }

  void ExpectSameBits(const std::function<void(v1::AttendRequest&)>& named,
                      const std::function<void(v1::AttendRequest&)>& sent) {
    ASSERT_OK_AND_ASSIGN(const v1::AttendResponse from_set, Attend(named));
    ASSERT_OK_AND_ASSIGN(const v1::AttendResponse from_request, Attend(sent));
    EXPECT_EQ(from_set.output().data(), from_request.output().data());
    EXPECT_EQ(from_set.weights().data(), from_request.weights().data());
    EXPECT_EQ(from_set.lse().data(), from_request.lse().data());
  }

  ModelFolders folders_;

 private:
  std::unique_ptr<server::Server> server_;
  std::unique_ptr<WireClient> client_;
};

// What the sets of these tests are when they come with the request.
void SendAdditive(v1::AttendRequest& request) {
  *request.mutable_additive()->mutable_w_q() = ToTensor(kWq);
  *request.mutable_additive()->mutable_w_k() = ToTensor(kWk);
  *request.mutable_additive()->mutable_w_v() = Floats({3}, kWv);
}
void SendBilinear(v1::AttendRequest& request) {
  *request.mutable_bilinear()->mutable_m() = ToTensor(kM);
}

std::function<void(v1::AttendRequest&)> Named(const std::string& name) {
  return [name](v1::AttendRequest& request) {
    request.mutable_parameter_set()->set_name(name);
  };
}

TEST_F(ParameterSetTest, AdditiveInputByOutput) {
  AddAdditive("input_by_output");
  ExpectSameBits(Named("a"), SendAdditive);
}

TEST_F(ParameterSetTest, AdditiveOutputByInput) {
  AddAdditive("output_by_input");
  ExpectSameBits(Named("a"), SendAdditive);
}

TEST_F(ParameterSetTest, BilinearInputByOutput) {
  AddBilinear("input_by_output");
  ExpectSameBits(Named("b"), SendBilinear);
}

TEST_F(ParameterSetTest, BilinearOutputByInput) {
  AddBilinear("output_by_input");
  ExpectSameBits(Named("b"), SendBilinear);
}

TEST_F(ParameterSetTest, OptionsOfTheSetAreDefaults) {
  AddBilinear("input_by_output",
              R"("scale": 0.5, "softcap": 2, "causal": "top_left")");
  ExpectSameBits(Named("b"), [](v1::AttendRequest& request) {
    SendBilinear(request);
    request.mutable_bilinear()->set_scale(0.5);
    request.set_softcap(2);
    request.set_causal(v1::CAUSAL_TOP_LEFT);
  });
}

TEST_F(ParameterSetTest, OptionsOfTheRequestWin) {
  AddBilinear("input_by_output",
              R"("scale": 0.5, "softcap": 2, "causal": "top_left",
                 "window_left": 0, "empty_rows": "uniform", "training": true,
                 "dropout_p": 0.5)");
  ExpectSameBits(
      [](v1::AttendRequest& request) {
        request.mutable_parameter_set()->set_name("b");
        request.mutable_parameter_set()->set_scale(0);
        request.set_softcap(3);
        request.set_causal(v1::CAUSAL_NONE);
        request.set_window_left(1);
        request.set_empty_rows(v1::EMPTY_ROWS_ZERO);
        request.set_training(false);
      },
      [](v1::AttendRequest& request) {
        SendBilinear(request);
        request.mutable_bilinear()->set_scale(0);
        request.set_softcap(3);
        request.set_window_left(1);
      });
}

TEST_F(ParameterSetTest, ASetServesHalfPrecisionQueries) {
  AddBilinear("input_by_output");
  v1::AttendRequest named = TinyRequest(v1::DATA_TYPE_FP16);
  Named("b")(named);
  v1::AttendRequest sent = TinyRequest(v1::DATA_TYPE_FP16);
  SendBilinear(sent);
  ASSERT_OK_AND_ASSIGN(const auto from_set, Client().Attend(named));
  ASSERT_OK_AND_ASSIGN(const auto from_request, Client().Attend(sent));
  EXPECT_EQ(from_set.output().data(), from_request.output().data());
}

TEST_F(ParameterSetTest, AnUnknownNameListsTheKnownOnes) {
  AddAdditive("input_by_output");
  AddBilinear("input_by_output");
  EXPECT_THAT(Attend(Named("c")),
              StatusIs(absl::StatusCode::kNotFound,
                       AllOf(HasSubstr("parameter_set: "), HasSubstr("'c'"),
                             HasSubstr("a, b"))));
}

TEST_F(ParameterSetTest, AScaleThatTheScoringHasNotIsRefused) {
  AddAdditive("input_by_output");
  EXPECT_THAT(Attend([](v1::AttendRequest& request) {
                request.mutable_parameter_set()->set_name("a");
                request.mutable_parameter_set()->set_scale(1);
              }),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("parameter_set.scale: this scoring function "
                                 "has none")));
}

TEST_F(ParameterSetTest, WidthsThatDoNotFitTheParametersAreRefused) {
  folders_.Add("wide",
               R"({"scoring": "bilinear",
                   "parameters": {"m": {"layout": "input_by_output"}}})",
               {{"m", Tensor::FromFloats({3, 2}, {1, 2, 3, 4, 5, 6})}});
  EXPECT_THAT(Attend(Named("wide")),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("m: shape [3, 2] (expected [2, 2]")));
}

TEST(ModelRepositoryOption, ADirectoryThatIsNotThereStopsTheStart) {
  server::ServerOptions options = TestOptions();
  options.model_repository = "/nowhere/at/all";
  EXPECT_THAT(server::Server::Start(options),
              StatusIs(absl::StatusCode::kNotFound,
                       AllOf(HasSubstr("--model-repository: "),
                             HasSubstr("/nowhere/at/all"))));
}

}  // namespace
}  // namespace attention::test
