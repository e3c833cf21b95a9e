#include "client/cpp/cli/demo_command.h"

#include <iostream>
#include <numeric>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/cpp/cli/attend_report.h"
#include "client/cpp/cli/failure.h"

namespace attention::cli {
namespace {

constexpr int64_t kBatches = 2;
constexpr int64_t kKeys = 10;
constexpr int64_t kValueWidth = 4;
constexpr int32_t kValidLens[] = {2, 6};

// The generator is the standard's, bit for bit the same everywhere; the normal
// distribution is not, so its values differ between C++ libraries. The results
// do not depend on them.
class Normal {
 public:
  Tensor operator()(Shape shape) {
    std::vector<float> values(static_cast<size_t>(std::accumulate(
        shape.begin(), shape.end(), int64_t{1}, std::multiplies<>())));
    for (float& value : values) value = normal_(generator_);
    return Tensor::FromFloats(std::move(shape), values);
  }

 private:
  std::mt19937 generator_{7};
  std::normal_distribution<float> normal_;
};

// Ten keys that are all the same, and the values 0 to 39 for both batch
// entries.
client::AttendRequest ToyRequest(Tensor query) {
  std::vector<float> ones(kBatches * kKeys * 2, 1.0F);
  std::vector<float> values(kBatches * kKeys * kValueWidth);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(i % (kKeys * kValueWidth));
  }
  client::AttendRequest request;
  request.query = std::move(query);
  request.key = Tensor::FromFloats({kBatches, kKeys, 2}, ones);
  request.value = Tensor::FromFloats({kBatches, kKeys, kValueWidth}, values);
  request.valid_lens = Tensor::FromInts({kBatches}, kValidLens);
  request.return_weights = true;
  return request;
}

// Equal keys have equal weights, so each output row is the mean of the valid
// values: of the first 2 and of the first 6.
const Tensor& ExpectedOutput() {
  static const Tensor expected = Tensor::FromFloats(
      {kBatches, 1, kValueWidth}, {2, 3, 4, 5, 10, 11, 12, 13});
  return expected;
}

void PrintResult(const Globals& globals, const client::AttendResult& result) {
  const std::vector<float> output = result.output.ToFloats();
  const Tensor& weights = *result.weights;
  Heatmap heatmap;
  heatmap.rows = kBatches;
  heatmap.columns = kKeys;
  heatmap.values = weights.ToFloats();
  std::cout << "\n";
  for (int64_t b = 0; b < kBatches; ++b) {
    const auto row = output.begin() + b * kValueWidth;
    std::cout << "  output of batch entry " << b << ", " << kValidLens[b]
              << " valid keys: ["
              << absl::StrJoin(row, row + kValueWidth, ", ",
                               [](std::string* text, float value) {
                                 absl::StrAppendFormat(text, "%.4g", value);
                               })
              << "]\n";
    heatmap.row_labels.push_back(absl::StrCat("batch entry ", b));
  }
  std::cout << "\n" << DrawHeatmap(heatmap, TerminalStyle(globals)) << "\n";
}

absl::Status RunExample(const Globals& globals, const client::Client& client,
                        const client::AttendRequest& request) {
  std::cout << DescribeRequest(request);
  const auto start = std::chrono::steady_clock::now();
  absl::StatusOr<client::AttendResult> result = client.Attend(request);
  const auto call_time = std::chrono::steady_clock::now() - start;
  if (!result.ok()) return CallError(result.status(), globals.server);
  std::cout << DescribeResult(request, *result, call_time);
  absl::StatusOr<double> difference =
      LargestDifference(result->output, ExpectedOutput());
  if (!difference.ok() ||
      result->weights->element_count() != kBatches * kKeys) {
    return absl::InternalError("the reply has tensors of the wrong shape");
  }
  PrintResult(globals, *result);
  if (*difference > 1e-4) {
    return absl::InternalError(absl::StrFormat(
        "the outputs are wrong by %g: expected [2, 3, 4, 5] and "
        "[10, 11, 12, 13]",
        *difference));
  }
  return absl::OkStatus();
}

absl::Status RunDemo(const Globals& globals) {
  absl::StatusOr<client::Client> client = Connect(globals);
  if (!client.ok()) return client.status();
  Normal normal;
  std::cout << "Two batch entries, one query each, ten keys of which the first "
               "2 and the first 6 are valid.\nAll keys are the same, so every "
               "valid key gets the same weight, whatever the query,\nand the "
               "output is the mean of the valid values.\n\n"
               "1. Scaled dot-product attention\n\n";
  absl::Status status =
      RunExample(globals, *client, ToyRequest(normal({kBatches, 1, 2})));
  if (!status.ok()) return status;

  std::cout << "2. Additive attention, hidden width 8: queries and keys need "
               "not be equally wide\n\n";
  client::AttendRequest request = ToyRequest(normal({kBatches, 1, 20}));
  request.scoring =
      client::Additive{normal({20, 8}), normal({2, 8}), normal({8})};
  return RunExample(globals, *client, request);
}

}  // namespace

void AddDemoCommand(CLI::App& app, const Globals& globals, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "demo", "The textbooks' two toy examples, with their weights drawn");
  command->fallthrough();  // so that --server may come after the command
  command->callback(
      [&globals, &exit_code] { exit_code = Report(RunDemo(globals)); });
}

}  // namespace attention::cli
