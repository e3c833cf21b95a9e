#ifndef ATTENTION_CLIENT_CLI_CONVERT_H_
#define ATTENTION_CLIENT_CLI_CONVERT_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cpp/cli/attend_inputs.h"
#include "core/tensor.h"

namespace attention::cli {

/// The same elements as `type`, rounded to nearest. `overflowed` counts the
/// finite ones that became infinite.
absl::StatusOr<Tensor> ConvertTensor(const Tensor& tensor, DataType type,
                                     int64_t& overflowed);

/// Brings the inputs to types that the service takes: query, key and value to
/// `wanted`, or, where that is absent, FP64 to FP32; bias and parameters to
/// FP32 where they are neither that nor of the query's type; slopes, sinks and
/// scales to FP32. Says in `notes` what was done, a sentence each.
absl::Status ConvertInputs(std::optional<DataType> wanted, Inputs& inputs,
                           std::vector<std::string>& notes);

}  // namespace attention::cli

#endif  // ATTENTION_CLIENT_CLI_CONVERT_H_
