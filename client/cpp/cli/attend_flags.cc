#include "client/cpp/cli/attend_flags.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "client/cpp/cli/numbers.h"

namespace attention::cli {
namespace {

void AddInputFlags(CLI::App& command, AttendFlags& flags) {
  command
      .add_option("--input", flags.inputs.safetensors,
                  "A safetensors file with query, key, value and whatever "
                  "else the request has, by the names below")
      ->type_name("FILE")
      ->group("Inputs");
  command
      .add_option("--case", flags.inputs.prefix,
                  "Take the tensors NAME/query, NAME/key, ... of the file")
      ->type_name("NAME")
      ->group("Inputs");
  for (const std::string& name : InputNames()) {
    const std::string flag =
        absl::StrCat("--", absl::StrReplaceAll(name, {{"_", "-"}}));
    command
        .add_option_function<std::string>(
            flag,
            [&flags, name](const std::string& path) {
              flags.inputs.npy[name] = path;
            },
            absl::StrCat(name, " from a .npy file"))
        ->type_name("FILE.npy")
        ->group("Inputs");
  }
  command
      .add_option("--datatype", flags.datatype,
                  "Convert query, key and value to FP32, FP16 or BF16 first")
      ->check(CLI::IsMember({"FP32", "FP16", "BF16"}).description(""))
      ->type_name("TYPE")
      ->group("Inputs");
}

void AddScoringFlags(CLI::App& command, AttendFlags& flags) {
  const char* group = "Scores";
  command
      .add_option("--scoring", flags.scoring,
                  "scaled_dot_product, additive, gaussian or bilinear; "
                  "without it, what the parameters say")
      ->check(
          CLI::IsMember({kScaledDotProduct, kAdditive, kGaussian, kBilinear})
              .description(""))
      ->type_name("NAME")
      ->group(group);
  command
      .add_option("--parameter-set", flags.parameter_set,
                  "Score with parameters that the server has under a name, "
                  "instead of sending them")
      ->excludes("--scoring")
      ->type_name("NAME")
      ->group(group);
  command
      .add_option("--scale", flags.scale,
                  "Scaled dot product: 1/sqrt(width) without it; bilinear: 1")
      ->group(group);
  command
      .add_option("--sigma", flags.sigma,
                  "Gaussian: 1e-19 or more; 1 without it")
      ->group(group);
  command
      .add_option("--softcap", flags.softcap,
                  "c * tanh(score / c); 0: none, whatever the set has")
      ->group(group);
}

void AddMaskFlags(CLI::App& command, AttendFlags& flags) {
  const char* group = "Masks";
  command
      .add_option("--causal", flags.causal, "none, top_left or bottom_right")
      ->check(
          CLI::IsMember({"none", "top_left", "bottom_right"}).description(""))
      ->type_name("RULE")
      ->group(group);
  AddInteger(command, "--query-offset", flags.query_offset,
             "Position of the first query")
      ->group(group);
  AddInteger(command, "--key-offset", flags.key_offset,
             "Position of the first key")
      ->group(group);
  AddInteger(command, "--window-left", flags.window_left,
             "Keys before a query's position that it sees; -1: all")
      ->group(group);
  AddInteger(command, "--window-right", flags.window_right,
             "Keys after it that it sees; -1: all")
      ->group(group);
  command
      .add_option("--empty-rows", flags.empty_rows,
                  "What a row without keys gives: zero or uniform")
      ->check(CLI::IsMember({"zero", "uniform"}).description(""))
      ->type_name("RULE")
      ->group(group);
}

void AddDropoutFlags(CLI::App& command, AttendFlags& flags) {
  const char* group = "Dropout";
  command
      .add_flag("--training", flags.training,
                "Drop weights; without it nothing is dropped")
      ->group(group);
  command.add_option("--dropout-p", flags.dropout_p, "Probability, 0 <= p < 1")
      ->group(group);
  AddInteger(command, "--seed", flags.seed, "Which weights are dropped")
      ->group(group);
  command
      .add_flag("--weights-after-dropout", flags.weights_after_dropout,
                "Return the weights after dropout, not before it")
      ->group(group);
}

void AddResultFlags(CLI::App& command, AttendFlags& flags) {
  const char* group = "Results";
  command
      .add_option("--output", flags.output,
                  "Write all results to a safetensors file")
      ->type_name("FILE")
      ->group(group);
  command.add_flag("--weights", flags.weights, "Ask for the weights")
      ->group(group);
  command.add_flag("--lse", flags.lse, "Ask for the rows' log-sum-exp")
      ->group(group);
  AddInteger(command, "--top-k", flags.top_k,
             "Ask for so many of each row's largest weights, with the "
             "positions of their keys")
      ->group(group);
  command
      .add_flag("--key-weights", flags.key_weights,
                "Ask for the sum of the weights that each key receives")
      ->group(group);
  command
      .add_option("--scores", flags.scores,
                  "Ask for the scores: scaled, capped (after the softcap) or "
                  "masked (after bias and masks)")
      ->check(CLI::IsMember({"scaled", "capped", "masked"}).description(""))
      ->type_name("STAGE")
      ->group(group);
  command
      .add_option("--heatmap", flags.heatmap,
                  "Draw the weights of one head of one batch entry")
      ->type_name("BATCH,HEAD")
      ->group(group);
  command
      .add_option("--tolerance", flags.tolerance,
                  "Fail where a result is further than this from what the "
                  "file expects")
      ->check(InRange(0, std::numeric_limits<double>::max()))
      ->group(group);
}

}  // namespace

void AddAttendFlags(CLI::App& command, AttendFlags& flags) {
  AddInputFlags(command, flags);
  AddScoringFlags(command, flags);
  AddMaskFlags(command, flags);
  AddDropoutFlags(command, flags);
  AddResultFlags(command, flags);
}

}  // namespace attention::cli
