#ifndef ATTENTION_CLIENT_CLI_ATTEND_FLAGS_H_
#define ATTENTION_CLIENT_CLI_ATTEND_FLAGS_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "attention_client/client.h"
#include "client/cpp/cli/attend_inputs.h"

namespace attention::cli {

/// What --scoring says.
inline constexpr char kScaledDotProduct[] = "scaled_dot_product";
inline constexpr char kAdditive[] = "additive";
inline constexpr char kGaussian[] = "gaussian";
inline constexpr char kBilinear[] = "bilinear";

/// The command line of `attend`. Options that are absent stay absent on the
/// wire.
struct AttendFlags {
  InputFlags inputs;
  std::optional<std::string> scoring;
  std::optional<std::string> parameter_set;
  std::optional<double> scale;
  std::optional<double> sigma;
  std::optional<double> softcap;
  std::optional<std::string> causal;
  std::optional<int64_t> query_offset;
  std::optional<int64_t> key_offset;
  std::optional<int64_t> window_left;
  std::optional<int64_t> window_right;
  bool training = false;
  std::optional<double> dropout_p;
  std::optional<uint64_t> seed;
  bool weights_after_dropout = false;
  std::optional<std::string> empty_rows;
  std::optional<std::string> datatype;
  bool weights = false;
  bool lse = false;
  std::optional<int64_t> top_k;
  bool key_weights = false;
  std::optional<std::string> scores;
  std::string output;
  std::optional<double> tolerance;
  std::string heatmap;  // "BATCH,HEAD"
};

/// Adds every flag, in groups, with help.
void AddAttendFlags(CLI::App& command, AttendFlags& flags);

/// The request that flags and inputs ask for together; takes the tensors. The
/// scoring function follows from the parameters that are there unless it, or a
/// set of parameters that the server has, is named; parameters of another
/// function that came with a file are added to inputs.unused. UsageError()
/// where flags and inputs contradict each other. Weights and lse are also asked
/// for where the heatmap or what the file expects needs them.
absl::StatusOr<client::AttendRequest> BuildRequest(const AttendFlags& flags,
                                                   Inputs& inputs);

}  // namespace attention::cli

#endif  // ATTENTION_CLIENT_CLI_ATTEND_FLAGS_H_
