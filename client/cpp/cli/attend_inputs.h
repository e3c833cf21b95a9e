#ifndef ATTENTION_CLIENT_CLI_ATTEND_INPUTS_H_
#define ATTENTION_CLIENT_CLI_ATTEND_INPUTS_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/tensor.h"

namespace attention::cli {

/// The inputs that `attend` knows, as the wire names them, in the order of help
/// and summaries.
const std::vector<std::string>& InputNames();

/// Where inputs come from.
struct InputFlags {
  std::string safetensors;                 // --input
  std::string prefix;                      // --case
  std::map<std::string, std::string> npy;  // input name -> .npy file
};

/// What was found there.
struct Inputs {
  std::map<std::string, Tensor> tensors;   // by input name
  std::map<std::string, Tensor> expected;  // "output", "weights", "lse"
  std::vector<std::string> tokens;     // B * L labels, where the file has them
  std::vector<std::string> sentences;  // B, where the file has them
  // Tensors of no known name, or of a second one for what is there: "mask"
  // beside "attend_mask", "output" beside "expected_output".
  std::vector<std::string> unused;
};

/// Reads the files. A .npy file stands in for the tensor of the same name in
/// the safetensors file. Errors say which file, which tensor is missing and,
/// where only a --case is, which cases there are.
absl::StatusOr<Inputs> LoadInputs(const InputFlags& flags);

}  // namespace attention::cli

#endif  // ATTENTION_CLIENT_CLI_ATTEND_INPUTS_H_
