#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "client/cpp/cli/attend_flags.h"
#include "client/cpp/cli/failure.h"
#include "client/cpp/src/request_tensors.h"

namespace attention::cli {
namespace {

std::string InferScoring(const AttendFlags& flags, const Inputs& inputs,
                         bool& ambiguous) {
  if (flags.scoring) return *flags.scoring;
  const bool additive = inputs.tensors.count("w_q") +
                            inputs.tensors.count("w_k") +
                            inputs.tensors.count("w_v") >
                        0;
  const bool bilinear = inputs.tensors.count("m") > 0;
  ambiguous = additive && bilinear;
  if (additive) return kAdditive;
  if (bilinear) return kBilinear;
  return flags.sigma ? kGaussian : kScaledDotProduct;
}

absl::Status Misfit(absl::string_view flag, absl::string_view scoring) {
  return UsageError(absl::StrCat(flag, " does not go with ", scoring,
                                 " scoring (--scoring chooses another)"));
}

absl::StatusOr<Tensor> Take(Inputs& inputs, const char* name,
                            absl::string_view scoring) {
  const auto found = inputs.tensors.find(name);
  if (found == inputs.tensors.end()) {
    return UsageError(absl::StrCat(scoring, " scoring needs ", name,
                                   ": a tensor of that name in the file, or --",
                                   absl::StrReplaceAll(name, {{"_", "-"}}),
                                   " FILE.npy"));
  }
  Tensor tensor = std::move(found->second);
  inputs.tensors.erase(found);
  return tensor;
}

absl::StatusOr<client::Scoring> TakeAdditive(Inputs& inputs) {
  absl::StatusOr<Tensor> w_q = Take(inputs, "w_q", kAdditive);
  if (!w_q.ok()) return w_q.status();
  absl::StatusOr<Tensor> w_k = Take(inputs, "w_k", kAdditive);
  if (!w_k.ok()) return w_k.status();
  absl::StatusOr<Tensor> w_v = Take(inputs, "w_v", kAdditive);
  if (!w_v.ok()) return w_v.status();
  return client::Additive{*std::move(w_q), *std::move(w_k), *std::move(w_v)};
}

absl::StatusOr<client::Scoring> TakeScoring(const AttendFlags& flags,
                                            Inputs& inputs) {
  if (flags.parameter_set) {
    return client::ParameterSet{*flags.parameter_set, flags.scale, flags.sigma};
  }
  bool ambiguous = false;
  const std::string scoring = InferScoring(flags, inputs, ambiguous);
  if (ambiguous) {
    return UsageError(
        "the inputs have parameters of additive (w_q, w_k, w_v) and of "
        "bilinear "
        "scoring (m): choose with --scoring");
  }
  if (flags.scale && scoring != kScaledDotProduct && scoring != kBilinear) {
    return Misfit("--scale", scoring);
  }
  if (flags.sigma && scoring != kGaussian) return Misfit("--sigma", scoring);
  if (scoring == kAdditive) return TakeAdditive(inputs);
  if (scoring == kGaussian) return client::Gaussian{flags.sigma};
  if (scoring == kBilinear) {
    absl::StatusOr<Tensor> m = Take(inputs, "m", kBilinear);
    if (!m.ok()) return m.status();
    return client::Bilinear{*std::move(m), flags.scale};
  }
  return client::ScaledDotProduct{flags.scale};
}

// Parameters that no scoring function took: an error where a flag named them.
absl::Status SetAsideParameters(const AttendFlags& flags, Inputs& inputs) {
  for (const char* name : {"w_q", "w_k", "w_v", "m"}) {
    const auto found = inputs.tensors.find(name);
    if (found == inputs.tensors.end()) continue;
    if (flags.inputs.npy.count(name) > 0) {
      const std::string flag =
          absl::StrCat("--", absl::StrReplaceAll(name, {{"_", "-"}}));
      return flags.parameter_set
                 ? UsageError(absl::StrCat(
                       flag,
                       " does not go with --parameter-set, which has its "
                       "own parameters"))
                 : Misfit(flag, flags.scoring.value_or(kScaledDotProduct));
    }
    inputs.unused.emplace_back(name);
    inputs.tensors.erase(found);
  }
  return absl::OkStatus();
}

void SetMasks(const AttendFlags& flags, client::AttendRequest& request) {
  if (flags.causal) {
    request.causal = *flags.causal == "none" ? client::Causal::kNone
                     : *flags.causal == "top_left"
                         ? client::Causal::kTopLeft
                         : client::Causal::kBottomRight;
  }
  request.query_offset = flags.query_offset;
  request.key_offset = flags.key_offset;
  request.window_left = flags.window_left;
  request.window_right = flags.window_right;
  if (flags.empty_rows) {
    request.empty_rows = *flags.empty_rows == "uniform"
                             ? client::EmptyRows::kUniform
                             : client::EmptyRows::kZero;
  }
}

}  // namespace

absl::StatusOr<client::AttendRequest> BuildRequest(const AttendFlags& flags,
                                                   Inputs& inputs) {
  client::AttendRequest request;
  absl::StatusOr<client::Scoring> scoring = TakeScoring(flags, inputs);
  if (!scoring.ok()) return scoring.status();
  request.scoring = *std::move(scoring);
  if (absl::Status aside = SetAsideParameters(flags, inputs); !aside.ok()) {
    return aside;
  }
  request.query = std::move(inputs.tensors["query"]);
  request.key = std::move(inputs.tensors["key"]);
  request.value = std::move(inputs.tensors["value"]);
  request.softcap = flags.softcap;
  client::ForEachOptionalTensor(
      request, [&](const char* name, std::optional<Tensor>& tensor) {
        const auto found = inputs.tensors.find(name);
        if (found != inputs.tensors.end()) tensor = std::move(found->second);
      });
  SetMasks(flags, request);
  if (flags.training) request.training = true;
  request.dropout_p = flags.dropout_p;
  request.seed = flags.seed;
  if (flags.weights_after_dropout) request.weights_after_dropout = true;
  request.return_weights = flags.weights || !flags.heatmap.empty() ||
                           inputs.expected.count("weights") > 0;
  request.return_lse = flags.lse || inputs.expected.count("lse") > 0;
  request.top_k = flags.top_k;
  request.return_key_weights = flags.key_weights;
  if (flags.scores) {
    request.scores = *flags.scores == "scaled"   ? client::Scores::kScaled
                     : *flags.scores == "capped" ? client::Scores::kCapped
                                                 : client::Scores::kMasked;
  }
  return request;
}

}  // namespace attention::cli
