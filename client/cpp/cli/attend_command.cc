#include "client/cpp/cli/attend_command.h"

#include <iostream>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cpp/cli/attend_flags.h"
#include "client/cpp/cli/attend_report.h"
#include "client/cpp/cli/convert.h"
#include "client/cpp/cli/failure.h"
#include "client/cpp/cli/label.h"
#include "client/cpp/cli/weights_view.h"

namespace attention::cli {
namespace {

constexpr char kFooter[] = R"(Examples:
  Tensors query, key, value (and valid_lens, if there) of one file:
    attention-client attend --input inputs.safetensors --output results.safetensors
  One head's weights in the terminal, and a comparison with what the file expects:
    attention-client attend --input tests/data/minilm_layer3.safetensors \
        --heatmap 1,11 --tolerance 1e-5
  One of several cases in a file, with an option it needs:
    attention-client attend --input tests/data/pytorch.safetensors \
        --case multi_head/bias
  NumPy files, the sequence's past only:
    attention-client attend --query q.npy --key k.npy --value v.npy --causal top_left

--server, --deadline and --color: see attention-client --help.)";

absl::Status CheckFlags(const AttendFlags& flags, const Inputs& inputs) {
  // NumPy would not read it under that name.
  if (absl::EndsWith(flags.output, ".npy") ||
      absl::EndsWith(flags.output, ".npz")) {
    return UsageError(absl::StrCat(
        "--output: ", flags.output,
        " (expected a safetensors file, which holds all results)"));
  }
  if (flags.tolerance && inputs.expected.empty()) {
    return UsageError(
        "--tolerance: the inputs hold nothing to compare with "
        "(expected_output, expected_weights, output or weights)");
  }
  return absl::OkStatus();
}

absl::StatusOr<Inputs> LoadAndConvert(const AttendFlags& flags) {
  absl::StatusOr<Inputs> inputs = LoadInputs(flags.inputs);
  if (!inputs.ok()) return inputs.status();
  if (absl::Status fits = CheckFlags(flags, *inputs); !fits.ok()) return fits;
  std::optional<DataType> wanted;
  if (flags.datatype) wanted = DataTypeFromName(*flags.datatype);
  std::vector<std::string> notes;
  absl::Status converted = ConvertInputs(wanted, *inputs, notes);
  if (!converted.ok()) return converted;
  for (const std::string& note : notes) Note(note);
  return inputs;
}

void PrintHeatmap(const Globals& globals, const Inputs& inputs,
                  const HeadIndex& index, const client::AttendRequest& request,
                  const client::AttendResult& result) {
  std::string title = absl::StrCat("weights of batch entry ", index.batch,
                                   ", head ", index.head);
  const auto sentence = static_cast<size_t>(index.batch);
  if (sentence < inputs.sentences.size()) {
    absl::StrAppend(&title, ": \"", inputs.sentences[sentence], "\"");
  }
  std::cout << "\n"
            << Printable(title) << "\n\n"
            << DrawHeatmap(ViewOfWeights(*result.weights, index,
                                         request.valid_lens, inputs.tokens),
                           TerminalStyle(globals));
}

absl::Status RunAttend(const Globals& globals, const AttendFlags& flags) {
  absl::StatusOr<Inputs> inputs = LoadAndConvert(flags);
  if (!inputs.ok()) return inputs.status();
  absl::StatusOr<client::AttendRequest> request = BuildRequest(flags, *inputs);
  if (!request.ok()) return request.status();
  if (!inputs->unused.empty()) {
    Note(absl::StrCat("not used: ", absl::StrJoin(inputs->unused, ", ")));
  }
  std::optional<HeadIndex> head;
  if (!flags.heatmap.empty()) {
    if (request->query_starts) {
      return UsageError(
          "--heatmap: given with query_starts, expected a batch that is not "
          "packed");
    }
    absl::StatusOr<HeadIndex> index =
        ParseHeadIndex(flags.heatmap, request->query.shape());
    if (!index.ok()) return index.status();
    head = *index;
  }
  absl::StatusOr<client::Client> client = Connect(globals);
  if (!client.ok()) return client.status();

  std::cout << DescribeRequest(*request);
  const auto start = std::chrono::steady_clock::now();
  absl::StatusOr<client::AttendResult> result = client->Attend(*request);
  const auto call_time = std::chrono::steady_clock::now() - start;
  absl::Status called = result.status();
  if (called.ok() && head) {
    called = CheckWeights(result->weights->shape(), request->query.shape());
  }
  if (!called.ok()) return CallError(called, globals.server);
  std::cout << DescribeResult(*request, *result, call_time);
  absl::Status compared =
      CompareWithExpected(inputs->expected, *result, flags.tolerance);
  if (head) PrintHeatmap(globals, *inputs, *head, *request, *result);
  if (!flags.output.empty()) {
    absl::Status written = WriteResult(flags.output, *result);
    if (!written.ok()) return written;
    std::cout << "wrote " << flags.output << "\n";
  }
  return compared;
}

}  // namespace

void AddAttendCommand(CLI::App& app, const Globals& globals, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("attend", "Compute attention over tensors from files");
  command->fallthrough();  // so that --server may come after the command
  command->footer(kFooter);
  auto flags = std::make_shared<AttendFlags>();
  AddAttendFlags(*command, *flags);
  command->callback([&globals, &exit_code, flags] {
    exit_code = Report(RunAttend(globals, *flags));
  });
}

}  // namespace attention::cli
