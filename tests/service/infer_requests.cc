#include "tests/service/infer_requests.h"

#include <gtest/gtest.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "tests/service/requests.h"

namespace attention::test {
namespace {

using inference::ModelInferRequest;
using inference::ModelInferResponse;

std::string TypeName(v1::DataType type) {
  return v1::DataType_Name(type).substr(std::strlen("DATA_TYPE_"));
}

void SetNumber(const std::string& name, double value,
               ModelInferRequest& request) {
  (*request.mutable_parameters())[name].set_double_param(value);
}

void SetInteger(const std::string& name, int64_t value,
                ModelInferRequest& request) {
  (*request.mutable_parameters())[name].set_int64_param(value);
}

void SetScoring(const v1::AttendRequest& from, ModelInferRequest& to) {
  to.set_model_name(kDotProduct);
  switch (from.scoring_case()) {
    case v1::AttendRequest::kAdditive:
      to.set_model_name("additive_attention");
      AddInput("w_q", from.additive().w_q(), to);
      AddInput("w_k", from.additive().w_k(), to);
      AddInput("w_v", from.additive().w_v(), to);
      break;
    case v1::AttendRequest::kGaussian:
      to.set_model_name("gaussian_attention");
      if (from.gaussian().has_sigma()) {
        SetNumber("sigma", from.gaussian().sigma(), to);
      }
      break;
    case v1::AttendRequest::kBilinear:
      to.set_model_name("bilinear_attention");
      AddInput("m", from.bilinear().m(), to);
      if (from.bilinear().has_scale()) {
        SetNumber("scale", from.bilinear().scale(), to);
      }
      break;
    default:
      if (from.scaled_dot_product().has_scale()) {
        SetNumber("scale", from.scaled_dot_product().scale(), to);
      }
  }
}

void SetMasks(const v1::AttendRequest& from, ModelInferRequest& to) {
  if (from.has_valid_lens()) AddInput("valid_lens", from.valid_lens(), to);
  if (from.has_attend_mask()) AddInput("attend_mask", from.attend_mask(), to);
  if (from.has_bias()) AddInput("bias", from.bias(), to);
  if (from.has_alibi_slopes()) {
    AddInput("alibi_slopes", from.alibi_slopes(), to);
  }
  if (from.has_sinks()) AddInput("sinks", from.sinks(), to);
  if (from.has_query_offsets()) {
    AddInput("query_offsets", from.query_offsets(), to);
  }
  auto& parameters = *to.mutable_parameters();
  if (from.causal() == v1::CAUSAL_TOP_LEFT) {
    parameters["causal"].set_string_param("top_left");
  } else if (from.causal() == v1::CAUSAL_BOTTOM_RIGHT) {
    parameters["causal"].set_string_param("bottom_right");
  }
  if (from.has_query_offset()) {
    SetInteger("query_offset", from.query_offset(), to);
  }
  if (from.has_key_offset()) SetInteger("key_offset", from.key_offset(), to);
  if (from.has_window_left()) SetInteger("window_left", from.window_left(), to);
  if (from.has_window_right()) {
    SetInteger("window_right", from.window_right(), to);
  }
}

void SetMoreResults(const v1::AttendRequest& from, ModelInferRequest& to) {
  if (from.has_top_k()) {
    SetInteger("top_k", from.top_k(), to);
    to.add_outputs()->set_name("top_k_indices");
    to.add_outputs()->set_name("top_k_weights");
  }
  if (from.return_key_weights()) to.add_outputs()->set_name("key_weights");
  if (from.scores() == v1::SCORES_NONE) return;
  const std::string stage = from.scores() == v1::SCORES_SCALED   ? "scaled"
                            : from.scores() == v1::SCORES_CAPPED ? "capped"
                                                                 : "masked";
  (*to.mutable_parameters())["scores"].set_string_param(stage);
  to.add_outputs()->set_name("scores");
}

void SetOptions(const v1::AttendRequest& from, ModelInferRequest& to) {
  auto& parameters = *to.mutable_parameters();
  if (from.has_softcap()) SetNumber("softcap", from.softcap(), to);
  if (from.has_dropout_p()) SetNumber("dropout_p", from.dropout_p(), to);
  if (from.has_seed()) parameters["seed"].set_uint64_param(from.seed());
  if (from.has_training()) {
    parameters["training"].set_bool_param(from.training());
  }
  if (from.has_weights_after_dropout()) {
    parameters["weights_after_dropout"].set_bool_param(
        from.weights_after_dropout());
  }
  if (from.empty_rows() == v1::EMPTY_ROWS_UNIFORM) {
    parameters["empty_rows"].set_string_param("uniform");
  }
  to.add_outputs()->set_name("output");
  if (from.return_weights()) to.add_outputs()->set_name("weights");
  if (from.return_lse()) to.add_outputs()->set_name("lse");
  SetMoreResults(from, to);
}

template <typename T, typename Field>
void Append(const std::string& bytes, Field& field) {
  for (size_t at = 0; at < bytes.size(); at += sizeof(T)) {
    T element;
    std::memcpy(&element, bytes.data() + at, sizeof element);
    field.Add(element);
  }
}

}  // namespace

std::string InferenceMethod(const std::string& method) {
  return absl::StrCat("/inference.GRPCInferenceService/", method);
}

void AddInput(const std::string& name, const v1::Tensor& tensor,
              ModelInferRequest& request) {
  auto& input = *request.add_inputs();
  input.set_name(name);
  input.set_datatype(TypeName(tensor.datatype()));
  *input.mutable_shape() = tensor.shape();
  request.add_raw_input_contents(tensor.data());
}

ModelInferRequest ToInfer(const v1::AttendRequest& request) {
  ModelInferRequest infer;
  infer.set_id(request.id());
  AddInput("query", request.query(), infer);
  AddInput("key", request.key_value().key(), infer);
  AddInput("value", request.key_value().value(), infer);
  if (request.key_value().has_key_scale()) {
    AddInput("key_scale", request.key_value().key_scale(), infer);
    AddInput("value_scale", request.key_value().value_scale(), infer);
  }
  SetScoring(request, infer);
  SetMasks(request, infer);
  SetOptions(request, infer);
  return infer;
}

void UseTypedContents(ModelInferRequest& request) {
  for (int n = 0; n < request.inputs_size(); ++n) {
    auto& input = *request.mutable_inputs(n);
    const std::string& bytes = request.raw_input_contents(n);
    inference::InferTensorContents& contents = *input.mutable_contents();
    if (input.datatype() == "FP32") {
      Append<float>(bytes, *contents.mutable_fp32_contents());
    } else if (input.datatype() == "INT32") {
      Append<int32_t>(bytes, *contents.mutable_int_contents());
    } else if (input.datatype() == "INT8") {
      Append<int8_t>(bytes, *contents.mutable_int_contents());
    } else if (input.datatype() == "INT64") {
      Append<int64_t>(bytes, *contents.mutable_int64_contents());
    } else if (input.datatype() == "BOOL") {
      Append<uint8_t>(bytes, *contents.mutable_bool_contents());
    } else if (input.datatype() == "UINT8") {
      Append<uint8_t>(bytes, *contents.mutable_uint_contents());
    } else {
      ADD_FAILURE() << input.datatype() << " has no typed contents";
    }
  }
  request.clear_raw_input_contents();
}

absl::StatusOr<ModelInferResponse> Infer(WireClient& client,
                                         const ModelInferRequest& request) {
  return CallInference<ModelInferResponse>(client, "ModelInfer", request);
}

void ExpectSameAnswer(const absl::StatusOr<ModelInferResponse>& infer,
                      const absl::StatusOr<v1::AttendResponse>& attend) {
  ASSERT_TRUE(infer.ok()) << infer.status();
  ASSERT_TRUE(attend.ok()) << attend.status();
  std::vector<const v1::Tensor*> tensors = {&attend->output()};
  if (attend->has_weights()) tensors.push_back(&attend->weights());
  if (attend->has_lse()) tensors.push_back(&attend->lse());
  if (attend->has_top_k_indices()) {
    tensors.push_back(&attend->top_k_indices());
    tensors.push_back(&attend->top_k_weights());
  }
  if (attend->has_key_weights()) tensors.push_back(&attend->key_weights());
  if (attend->has_scores()) tensors.push_back(&attend->scores());
  ASSERT_EQ(infer->outputs_size(), static_cast<int>(tensors.size()));
  ASSERT_EQ(infer->raw_output_contents_size(), infer->outputs_size());
  for (int n = 0; n < infer->outputs_size(); ++n) {
    const v1::Tensor& tensor = *tensors[static_cast<size_t>(n)];
    const auto& output = infer->outputs(n);
    SCOPED_TRACE(output.name());
    EXPECT_EQ(output.datatype(), TypeName(tensor.datatype()));
    EXPECT_EQ(
        std::vector<int64_t>(output.shape().begin(), output.shape().end()),
        Shape(tensor));
    EXPECT_TRUE(infer->raw_output_contents(n) == tensor.data());
  }
}

ModelInferRequest GoodInfer(const std::string& id) {
  return ToInfer(GoodRequest(id));
}

}  // namespace attention::test
