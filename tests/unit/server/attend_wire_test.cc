#include "server/wire/attend_wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "core/element.h"
#include "tests/support/model_folders.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/server/attend_requests.h"

namespace attention::server {
namespace {

using ::attention::test::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using v1::AttendRequest;

// A wire stays where it is while its problem is looked at.
struct DecodedAttend {
  explicit DecodedAttend(const v1::AttendRequest& message,
                         const ModelRepository& models = ModelRepository())
      : wire(/*on_stream=*/false, models),
        request(wire.Decode(OneSlice(message.SerializeAsString()),
                            server::HoldUncounted)) {}

  const AttentionProblem& problem() const { return request->problem; }

  AttendWire wire;
  absl::StatusOr<AttentionRequest> request;
};

TEST(AttendWire, FillsEveryField) {
  const DecodedAttend decoded(FullRequest());
  ASSERT_THAT(decoded.request, test::IsOk());
  const AttentionProblem& problem = decoded.problem();
  EXPECT_THAT(problem.query.shape, ElementsAre(1, 2));
  EXPECT_EQ(problem.query.type, DataType::kFloat32);
  EXPECT_EQ(LoadElement(DataType::kFloat32, problem.query.data), 1);
  ASSERT_EQ(problem.key_value.size(), 1U);
  EXPECT_THAT(problem.key_value[0].key.shape, ElementsAre(2, 2));
  EXPECT_THAT(problem.key_value[0].value.shape, ElementsAre(2, 1));
  const auto& additive = std::get<Additive>(problem.scoring);
  EXPECT_EQ(LoadElement(DataType::kFloat32, additive.w_q.data), 1);
  EXPECT_EQ(LoadElement(DataType::kFloat32, additive.w_k.data), 3);
  EXPECT_EQ(LoadElement(DataType::kFloat32, additive.w_v.data), 5);
  EXPECT_EQ(problem.softcap, 30);
  EXPECT_EQ(problem.masks.valid_lens->type, DataType::kInt32);
  EXPECT_EQ(problem.masks.attend_mask->type, DataType::kBool);
  EXPECT_EQ(problem.masks.bias->type, DataType::kFloat32);
  EXPECT_EQ(LoadElement(DataType::kFloat32, problem.alibi_slopes->data), 6);
  EXPECT_EQ(LoadElement(DataType::kFloat32, problem.sinks->data), 7);
  EXPECT_EQ(problem.masks.query_offsets->type, DataType::kInt32);
  EXPECT_EQ(problem.masks.causal, Causal::kTopLeft);
  EXPECT_EQ(problem.masks.query_offset, 7);
  EXPECT_EQ(problem.masks.key_offset, -3);
  EXPECT_EQ(problem.masks.window.left, 100);
  EXPECT_EQ(problem.masks.window.right, 200);
  EXPECT_TRUE(problem.dropout.training);
  EXPECT_EQ(problem.dropout.p, 0.25);
  EXPECT_EQ(problem.dropout.seed, 0xFFFFFFFFFFFFFFFF);
  EXPECT_EQ(problem.empty_rows, EmptyRows::kUniform);
  EXPECT_TRUE(problem.wanted.weights);
  EXPECT_TRUE(problem.wanted.weights_after_dropout);
  EXPECT_TRUE(problem.wanted.lse);
}

TEST(AttendWire, LeavesAbsentFieldsAtTheirDefaults) {
  const DecodedAttend decoded(SmallRequest());
  ASSERT_THAT(decoded.request, test::IsOk());
  const AttentionProblem& problem = decoded.problem();
  EXPECT_EQ(std::get<ScaledDotProduct>(problem.scoring).scale, std::nullopt);
  EXPECT_EQ(problem.softcap, std::nullopt);
  EXPECT_FALSE(problem.masks.valid_lens.has_value());
  EXPECT_FALSE(problem.masks.attend_mask.has_value());
  EXPECT_FALSE(problem.masks.bias.has_value());
  EXPECT_EQ(problem.masks.causal, Causal::kNone);
  EXPECT_EQ(problem.masks.query_offset, std::nullopt);
  EXPECT_EQ(problem.masks.key_offset, std::nullopt);
  EXPECT_EQ(problem.masks.window.left, std::nullopt);
  EXPECT_EQ(problem.masks.window.right, std::nullopt);
  EXPECT_FALSE(problem.dropout.training);
  EXPECT_EQ(problem.empty_rows, EmptyRows::kZero);
  EXPECT_FALSE(problem.wanted.weights);
  EXPECT_FALSE(problem.wanted.lse);
}

TEST(AttendWire, ReadsMoreResults) {
  v1::AttendRequest request = SmallRequest();
  request.set_top_k(1);
  request.set_return_key_weights(true);
  request.set_scores(v1::SCORES_MASKED);
  const DecodedAttend decoded(request);
  ASSERT_THAT(decoded.request, test::IsOk());
  const WantedOutputs& wanted = decoded.problem().wanted;
  EXPECT_EQ(wanted.top_k, 1);
  EXPECT_TRUE(wanted.key_weights);
  EXPECT_EQ(wanted.scores, ScoreStage::kMasked);
  request.set_scores(v1::SCORES_NONE);
  EXPECT_EQ(DecodedAttend(request).problem().wanted.scores, std::nullopt);
}

TEST(AttendWire, TellsZeroFromAbsent) {
  v1::AttendRequest request = SmallRequest();
  request.mutable_scaled_dot_product()->set_scale(0);
  request.set_query_offset(0);
  request.set_window_left(0);
  const DecodedAttend decoded(request);
  ASSERT_THAT(decoded.request, test::IsOk());
  const AttentionProblem& problem = decoded.problem();
  EXPECT_EQ(std::get<ScaledDotProduct>(problem.scoring).scale, 0);
  EXPECT_EQ(problem.masks.query_offset, 0);
  EXPECT_EQ(problem.masks.window.left, 0);
}

TEST(AttendWire, FillsTheOtherScorings) {
  v1::AttendRequest request = SmallRequest();
  request.mutable_gaussian();
  EXPECT_EQ(std::get<Gaussian>(DecodedAttend(request).problem().scoring).sigma,
            1);
  request.mutable_gaussian()->set_sigma(2);
  EXPECT_EQ(std::get<Gaussian>(DecodedAttend(request).problem().scoring).sigma,
            2);
  SetTensor(*request.mutable_bilinear()->mutable_m(), v1::DATA_TYPE_FP32,
            {2, 2}, Floats({1, 2, 3, 4}));
  EXPECT_EQ(std::get<Bilinear>(DecodedAttend(request).problem().scoring).scale,
            1);
  request.mutable_bilinear()->set_scale(0);
  EXPECT_EQ(std::get<Bilinear>(DecodedAttend(request).problem().scoring).scale,
            0);
}

constexpr char kTrained[] = R"({"scoring": "gaussian", "options": {
  "sigma": 3, "softcap": 4, "window_left": 5, "window_right": 6,
  "training": true, "dropout_p": 0.5, "seed": 6, "empty_rows": "uniform"}})";

class AttendWireWithASet : public ::testing::Test {
 protected:
  void SetUp() override {
    folders_.Add("trained", kTrained);
    models_ = ModelRepository::Open(folders_.path()).value();
    request_.mutable_parameter_set()->set_name("trained");
  }

  test::ModelFolders folders_;
  std::unique_ptr<ModelRepository> models_;
  v1::AttendRequest request_ = SmallRequest();
};

TEST_F(AttendWireWithASet, BeginsWithIt) {
  request_.set_window_left(7);
  const DecodedAttend decoded(request_, *models_);
  ASSERT_THAT(decoded.request, test::IsOk());
  const AttentionProblem& problem = decoded.problem();
  EXPECT_EQ(std::get<Gaussian>(problem.scoring).sigma, 3);
  EXPECT_EQ(problem.softcap, 4);
  EXPECT_EQ(problem.masks.window.left, 7);
  EXPECT_TRUE(problem.dropout.training);
  EXPECT_EQ(problem.dropout.p, 0.5);
  EXPECT_EQ(problem.dropout.seed, 6);
  EXPECT_EQ(problem.empty_rows, EmptyRows::kUniform);
  EXPECT_THAT(problem.query.shape, ElementsAre(1, 2));
}

TEST_F(AttendWireWithASet, CanSwitchOffItsSoftcapAndWindow) {
  request_.set_softcap(0);
  request_.set_window_left(-1);
  request_.set_window_right(-1);
  const DecodedAttend decoded(request_, *models_);
  ASSERT_THAT(decoded.request, test::IsOk());
  EXPECT_EQ(decoded.problem().softcap, std::nullopt);
  EXPECT_EQ(decoded.problem().masks.window.left, std::nullopt);
  EXPECT_EQ(decoded.problem().masks.window.right, std::nullopt);
}

TEST_F(AttendWireWithASet, CannotGiveItAnOptionOfAnotherScoring) {
  request_.mutable_parameter_set()->set_scale(2);
  EXPECT_THAT(DecodedAttend(request_, *models_).request,
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "parameter_set.scale: this scoring function has none "
                       "(scaled dot product and bilinear have)"));
}

TEST(AttendWire, DoesNotFindASetThatIsNotThere) {
  v1::AttendRequest request = SmallRequest();
  request.mutable_parameter_set()->set_name("trained");
  EXPECT_THAT(
      DecodedAttend(request).request,
      StatusIs(absl::StatusCode::kNotFound, HasSubstr("parameter_set")));
}

TEST(AttendWire, KnowsEveryDatatype) {
  const std::pair<v1::DataType, DataType> table[] = {
      {v1::DATA_TYPE_FP32, DataType::kFloat32},
      {v1::DATA_TYPE_FP16, DataType::kFloat16},
      {v1::DATA_TYPE_BF16, DataType::kBFloat16},
      {v1::DATA_TYPE_INT32, DataType::kInt32},
      {v1::DATA_TYPE_INT64, DataType::kInt64},
      {v1::DATA_TYPE_BOOL, DataType::kBool},
      {v1::DATA_TYPE_UINT8, DataType::kUint8},
  };
  for (const auto& [wire, type] : table) {
    v1::AttendRequest request = SmallRequest();
    SetTensor(*request.mutable_valid_lens(), wire, {1},
              std::string(ByteSize(type), '\0'));
    const DecodedAttend decoded(request);
    ASSERT_THAT(decoded.request, test::IsOk());
    EXPECT_EQ(decoded.problem().masks.valid_lens->type, type);
  }
}

struct WrongAttend {
  const char* name;
  std::function<void(v1::AttendRequest&)> spoil;
  const char* message;
};

class AttendWireRefuses : public ::testing::TestWithParam<WrongAttend> {};

TEST_P(AttendWireRefuses, AndNamesTheField) {
  v1::AttendRequest request = FullRequest();
  GetParam().spoil(request);
  EXPECT_THAT(DecodedAttend(request).request,
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr(GetParam().message)));
}

INSTANTIATE_TEST_SUITE_P(
    Wrong, AttendWireRefuses,
    ::testing::Values(
        WrongAttend{"Query", [](AttendRequest& r) { r.clear_query(); },
                    "query: missing"},
        WrongAttend{"KeyValue", [](AttendRequest& r) { r.clear_key_value(); },
                    "key_value: missing"},
        WrongAttend{
            "Key", [](AttendRequest& r) { r.mutable_key_value()->clear_key(); },
            "key: missing"},
        WrongAttend{
            "Value",
            [](AttendRequest& r) { r.mutable_key_value()->clear_value(); },
            "value: missing"},
        WrongAttend{"Wq",
                    [](AttendRequest& r) { r.mutable_additive()->clear_w_q(); },
                    "w_q: missing"},
        WrongAttend{"Wk",
                    [](AttendRequest& r) { r.mutable_additive()->clear_w_k(); },
                    "w_k: missing"},
        WrongAttend{"Wv",
                    [](AttendRequest& r) { r.mutable_additive()->clear_w_v(); },
                    "w_v: missing"},
        WrongAttend{"M", [](AttendRequest& r) { r.mutable_bilinear(); },
                    "m: missing"},
        WrongAttend{"Datatype",
                    [](AttendRequest& r) {
                      r.mutable_query()->set_datatype(
                          static_cast<v1::DataType>(99));
                    },
                    "query: datatype 99 is unknown (expected FP32, FP16 or "
                    "BF16)"},
        WrongAttend{
            "NoDatatype",
            [](AttendRequest& r) { r.mutable_valid_lens()->clear_datatype(); },
            "valid_lens: datatype 0 is unspecified (expected INT32 or "
            "INT64)"},
        WrongAttend{
            "Causal",
            [](AttendRequest& r) { r.set_causal(static_cast<v1::Causal>(7)); },
            "causal: 7 (expected 'none', 'top_left', "
            "'bottom_right')"},
        WrongAttend{"EmptyRows",
                    [](AttendRequest& r) {
                      r.set_empty_rows(static_cast<v1::EmptyRows>(-1));
                    },
                    "empty_rows: -1 (expected 'zero', 'uniform')"},
        WrongAttend{"Bytes",
                    [](AttendRequest& r) {
                      r.mutable_bias()->mutable_data()->pop_back();
                    },
                    "bias: "},
        WrongAttend{
            "NegativeExtent",
            [](AttendRequest& r) { r.mutable_query()->set_shape(0, -1); },
            "query: "},
        WrongAttend{"Overflow",
                    [](AttendRequest& r) {
                      r.mutable_query()->set_shape(0, int64_t{1} << 62);
                      r.mutable_query()->set_shape(1, int64_t{1} << 62);
                    },
                    "query: "},
        WrongAttend{"LongId",
                    [](AttendRequest& r) { r.set_id(std::string(257, 'x')); },
                    "id: 257 bytes (expected at most 256)"}),
    [](const auto& row) { return std::string(row.param.name); });

}  // namespace
}  // namespace attention::server
