#include "client/cpp/cli/attend_report.h"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cpp/cli/format.h"
#include "client/cpp/src/request_tensors.h"
#include "core/formats/safetensors.h"

namespace attention::cli {
namespace {

template <typename Visit>
void ForEachOutput(const client::AttendResult& result, Visit visit) {
  visit("output", result.output);
  if (result.weights) visit("weights", *result.weights);
  if (result.lse) visit("lse", *result.lse);
  if (result.top_k_indices) visit("top_k_indices", *result.top_k_indices);
  if (result.top_k_weights) visit("top_k_weights", *result.top_k_weights);
  if (result.key_weights) visit("key_weights", *result.key_weights);
  if (result.scores) visit("scores", *result.scores);
}

std::string OrDefault(const std::optional<double>& value, const char* absent) {
  return value ? absl::StrFormat("%g", *value) : std::string(absent);
}

struct ScoringName {
  std::string operator()(const client::ScaledDotProduct& scoring) const {
    return absl::StrCat("scaled dot product, scale ",
                        OrDefault(scoring.scale, "1/sqrt(width)"));
  }
  std::string operator()(const client::Additive&) const { return "additive"; }
  std::string operator()(const client::Gaussian& scoring) const {
    return absl::StrCat("gaussian, sigma ", OrDefault(scoring.sigma, "1"));
  }
  std::string operator()(const client::Bilinear& scoring) const {
    return absl::StrCat("bilinear, scale ", OrDefault(scoring.scale, "1"));
  }
  std::string operator()(const client::ParameterSet& scoring) const {
    return absl::StrCat("the server's parameter set ", scoring.name);
  }
};

const Tensor* Find(const client::AttendResult& result,
                   const std::string& name) {
  const Tensor* found = nullptr;
  ForEachOutput(result, [&](const char* output, const Tensor& tensor) {
    if (name == output) found = &tensor;
  });
  return found;
}

}  // namespace

std::string DescribeRequest(const client::AttendRequest& request) {
  std::string text;
  client::ForEachTensor(request, [&](const char* name, const Tensor& tensor) {
    text += Line(name, FormatTensor(tensor));
  });
  return text + Line("scoring", std::visit(ScoringName{}, request.scoring));
}

std::string DescribeResult(const client::AttendRequest& request,
                           const client::AttendResult& result,
                           std::chrono::nanoseconds call_time) {
  std::string text;
  uint64_t received = 0;
  ForEachOutput(result, [&](const char* name, const Tensor& tensor) {
    text += Line(name, FormatTensor(tensor));
    received += static_cast<uint64_t>(tensor.byte_size());
  });
  uint64_t sent = 0;
  client::ForEachTensor(request, [&](const char*, const Tensor& tensor) {
    sent += static_cast<uint64_t>(tensor.byte_size());
  });
  absl::StrAppend(
      &text,
      Line("answered by", absl::StrCat("backend ", result.backend, ", kernel ",
                                       result.kernel)),
      Line("time",
           absl::StrCat(FormatDuration(call_time),
                        " for the call: ", FormatDuration(result.queue_time),
                        " queued, ", FormatDuration(result.compute_time),
                        " computing, the rest connecting and on the way")),
      Line("tensor bytes", absl::StrCat(FormatBytes(sent), " sent, ",
                                        FormatBytes(received), " received")));
  return text;
}

absl::StatusOr<double> LargestDifference(const Tensor& actual,
                                         const Tensor& expected) {
  if (actual.shape() != expected.shape()) {
    return absl::InvalidArgumentError(
        absl::StrCat("shape ", ShapeToString(actual.shape()), ", expected ",
                     ShapeToString(expected.shape())));
  }
  const std::vector<double> a = actual.ToDoubles();
  const std::vector<double> b = expected.ToDoubles();
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) continue;
    const double difference = std::abs(a[i] - b[i]);
    if (std::isnan(difference)) return std::numeric_limits<double>::infinity();
    largest = std::max(largest, difference);
  }
  return largest;
}

absl::Status CompareWithExpected(const std::map<std::string, Tensor>& expected,
                                 const client::AttendResult& result,
                                 std::optional<double> tolerance) {
  absl::Status worst;
  for (const auto& [name, tensor] : expected) {
    const Tensor* actual = Find(result, name);
    if (actual == nullptr) continue;
    const absl::StatusOr<double> difference =
        LargestDifference(*actual, tensor);
    if (!difference.ok()) {
      return absl::FailedPreconditionError(
          absl::StrCat(name, ": ", difference.status().message()));
    }
    std::cout << Line("difference",
                      absl::StrFormat("at most %.2g from the expected %s",
                                      *difference, name));
    if (tolerance && *difference > *tolerance && worst.ok()) {
      worst = absl::FailedPreconditionError(absl::StrFormat(
          "%s differs from what the file expects by %.3g, more than the "
          "tolerance of %g",
          name, *difference, *tolerance));
    }
  }
  return worst;
}

absl::Status WriteResult(const std::string& path,
                         const client::AttendResult& result) {
  SafetensorsFile file;
  ForEachOutput(result, [&](const char* name, const Tensor& tensor) {
    file.tensors.emplace(name, tensor);
  });
  file.metadata = {{"backend", result.backend}, {"kernel", result.kernel}};
  return WriteSafetensors(path, file);
}

}  // namespace attention::cli
