#include "server/wire/problem_translation.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/tensor_view.h"

namespace attention::server {
namespace {

constexpr absl::string_view kAttentionTypes = "FP32, FP16 or BF16";
constexpr absl::string_view kParameterTypes = "FP32 or the query's datatype";

absl::Status FieldError(absl::string_view field, absl::string_view problem) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", problem));
}

std::optional<DataType> ToDataType(v1::DataType type) {
  switch (type) {
    case v1::DATA_TYPE_FP32:
      return DataType::kFloat32;
    case v1::DATA_TYPE_FP16:
      return DataType::kFloat16;
    case v1::DATA_TYPE_BF16:
      return DataType::kBFloat16;
    case v1::DATA_TYPE_INT32:
      return DataType::kInt32;
    case v1::DATA_TYPE_INT64:
      return DataType::kInt64;
    case v1::DATA_TYPE_BOOL:
      return DataType::kBool;
    case v1::DATA_TYPE_UINT8:
      return DataType::kUint8;
    default:
      return std::nullopt;
  }
}

std::optional<Causal> ToCausal(v1::Causal causal) {
  switch (causal) {
    case v1::CAUSAL_NONE:
      return Causal::kNone;
    case v1::CAUSAL_TOP_LEFT:
      return Causal::kTopLeft;
    case v1::CAUSAL_BOTTOM_RIGHT:
      return Causal::kBottomRight;
    default:
      return std::nullopt;
  }
}

std::optional<EmptyRows> ToEmptyRows(v1::EmptyRows rows) {
  switch (rows) {
    case v1::EMPTY_ROWS_ZERO:
      return EmptyRows::kZero;
    case v1::EMPTY_ROWS_UNIFORM:
      return EmptyRows::kUniform;
    default:
      return std::nullopt;
  }
}

// Reads the tensors of one request; after a failure the rest is skipped and
// status() says what the first one was.
class TensorReader {
 public:
  explicit TensorReader(const DecodedAttendRequest& request)
      : request_(request) {}

  void Require(bool present, const std::string& field, const v1::Tensor& tensor,
               absl::string_view expected_types, TensorView& view) {
    if (!present) {
      Fail(FieldError(field, "missing"));
      return;
    }
    Read(field, tensor, expected_types, view);
  }

  void Optional(bool present, const std::string& field,
                const v1::Tensor& tensor, absl::string_view expected_types,
                std::optional<TensorView>& view) {
    if (present) Read(field, tensor, expected_types, view.emplace());
  }

  void Fail(absl::Status error) { status_.Update(std::move(error)); }
  const absl::Status& status() const { return status_; }

 private:
  void Read(const std::string& field, const v1::Tensor& tensor,
            absl::string_view expected_types, TensorView& view) {
    const std::optional<DataType> type = ToDataType(tensor.datatype());
    if (!type) {
      const int number = tensor.datatype();
      Fail(FieldError(
          field, absl::StrCat("datatype ", number,
                              number == 0 ? " is unspecified" : " is unknown",
                              " (expected ", expected_types, ")")));
      return;
    }
    absl::StatusOr<TensorView> read = ViewOfBytes(
        field, *type, tensor.shape(), request_.Elements(field, tensor));
    if (!read.ok()) {
      Fail(read.status());
      return;
    }
    view = *std::move(read);
  }

  const DecodedAttendRequest& request_;
  absl::Status status_;
};

void ReadKeysAndValues(const v1::AttendRequest& message, TensorReader& tensors,
                       AttentionProblem& problem) {
  if (!message.has_key_value()) {
    tensors.Fail(FieldError("key_value", "missing"));
    return;
  }
  const v1::KeyValueTensors& wire = message.key_value();
  KeyValueBlock& block = problem.key_value.emplace_back();
  tensors.Require(wire.has_key(), "key", wire.key(), kAttentionTypes,
                  block.key);
  tensors.Require(wire.has_value(), "value", wire.value(), kAttentionTypes,
                  block.value);
}

template <typename Message>
std::optional<double> ScaleOf(const Message& message) {
  if (!message.has_scale()) return std::nullopt;
  return message.scale();
}

// What the request says about the scoring function that its set has given.
void ReadParameterSet(const v1::ParameterSet& wire, TensorReader& tensors,
                      AttentionProblem& problem) {
  const auto misfit = [&](const char* field, const char* those_that_have) {
    tensors.Fail(
        FieldError(absl::StrCat("parameter_set.", field),
                   absl::StrCat("'", wire.name(), "' has no ", field,
                                " (expected ", those_that_have, " scoring)")));
  };
  if (wire.has_scale()) {
    if (auto* dot = std::get_if<ScaledDotProduct>(&problem.scoring)) {
      dot->scale = wire.scale();
    } else if (auto* bilinear = std::get_if<Bilinear>(&problem.scoring)) {
      bilinear->scale = wire.scale();
    } else {
      misfit("scale", "scaled dot product or bilinear");
    }
  }
  if (wire.has_sigma()) {
    if (auto* gaussian = std::get_if<Gaussian>(&problem.scoring)) {
      gaussian->sigma = wire.sigma();
    } else {
      misfit("sigma", "Gaussian");
    }
  }
}

void ReadScoring(const v1::AttendRequest& message, TensorReader& tensors,
                 AttentionProblem& problem) {
  switch (message.scoring_case()) {
    case v1::AttendRequest::SCORING_NOT_SET:
      return;
    case v1::AttendRequest::kScaledDotProduct:
      problem.scoring = ScaledDotProduct{ScaleOf(message.scaled_dot_product())};
      return;
    case v1::AttendRequest::kAdditive: {
      const v1::Additive& wire = message.additive();
      auto& additive = problem.scoring.emplace<Additive>();
      tensors.Require(wire.has_w_q(), "w_q", wire.w_q(), kParameterTypes,
                      additive.w_q);
      tensors.Require(wire.has_w_k(), "w_k", wire.w_k(), kParameterTypes,
                      additive.w_k);
      tensors.Require(wire.has_w_v(), "w_v", wire.w_v(), kParameterTypes,
                      additive.w_v);
      return;
    }
    case v1::AttendRequest::kGaussian: {
      auto& gaussian = problem.scoring.emplace<Gaussian>();
      if (message.gaussian().has_sigma()) {
        gaussian.sigma = message.gaussian().sigma();
      }
      return;
    }
    case v1::AttendRequest::kBilinear: {
      const v1::Bilinear& wire = message.bilinear();
      auto& bilinear = problem.scoring.emplace<Bilinear>();
      bilinear.scale = ScaleOf(wire).value_or(bilinear.scale);
      tensors.Require(wire.has_m(), "m", wire.m(), kParameterTypes, bilinear.m);
      return;
    }
    case v1::AttendRequest::kParameterSet:
      ReadParameterSet(message.parameter_set(), tensors, problem);
      return;
  }
}

void ReadMasks(const v1::AttendRequest& message, TensorReader& tensors,
               Masks& masks) {
  tensors.Optional(message.has_valid_lens(), "valid_lens", message.valid_lens(),
                   "INT32 or INT64", masks.valid_lens);
  tensors.Optional(message.has_attend_mask(), "attend_mask",
                   message.attend_mask(), "BOOL or UINT8", masks.attend_mask);
  tensors.Optional(message.has_bias(), "bias", message.bias(), kParameterTypes,
                   masks.bias);
  if (const auto causal = ToCausal(message.causal())) {
    if (message.has_causal()) masks.causal = *causal;
  } else {
    tensors.Fail(FieldError(
        "causal", absl::StrCat(static_cast<int>(message.causal()),
                               " is unknown (expected 0 none, 1 top_left or 2 "
                               "bottom_right)")));
  }
  if (message.has_query_offset()) masks.query_offset = message.query_offset();
  if (message.has_key_offset()) masks.key_offset = message.key_offset();
  if (message.has_window_left()) masks.window.left = message.window_left();
  if (message.has_window_right()) masks.window.right = message.window_right();
}

void ReadOptions(const v1::AttendRequest& message, TensorReader& tensors,
                 AttentionProblem& problem) {
  if (message.has_softcap()) problem.softcap = message.softcap();
  if (message.has_training()) problem.dropout.training = message.training();
  if (message.has_dropout_p()) problem.dropout.p = message.dropout_p();
  if (message.has_seed()) problem.dropout.seed = message.seed();
  if (const auto rows = ToEmptyRows(message.empty_rows())) {
    if (message.has_empty_rows()) problem.empty_rows = *rows;
  } else {
    tensors.Fail(FieldError("empty_rows",
                            absl::StrCat(static_cast<int>(message.empty_rows()),
                                         " is unknown (expected 0 zero or 1 "
                                         "uniform)")));
  }
  if (message.has_weights_after_dropout()) {
    problem.wanted.weights_after_dropout = message.weights_after_dropout();
  }
  problem.wanted.weights = message.return_weights();
  problem.wanted.lse = message.return_lse();
}

}  // namespace

absl::StatusOr<AttentionProblem> TranslateToProblem(
    const DecodedAttendRequest& request, const ParameterSet* set) {
  const v1::AttendRequest& message = request.message();
  if (message.id().size() > kMostIdBytes) {
    return FieldError(
        "id", absl::StrCat(message.id().size(), " bytes (expected at most ",
                           kMostIdBytes, ")"));
  }
  AttentionProblem problem;
  if (message.has_parameter_set()) {
    if (set == nullptr) {
      return absl::NotFoundError("parameter_set: there is none of that name");
    }
    problem = set->defaults;
  }
  TensorReader tensors(request);
  tensors.Require(message.has_query(), "query", message.query(),
                  kAttentionTypes, problem.query);
  ReadKeysAndValues(message, tensors, problem);
  ReadScoring(message, tensors, problem);
  ReadMasks(message, tensors, problem.masks);
  ReadOptions(message, tensors, problem);
  if (!tensors.status().ok()) return tensors.status();
  return problem;
}

}  // namespace attention::server
