#ifndef ATTENTION_CLIENT_CLI_ATTEND_REPORT_H_
#define ATTENTION_CLIENT_CLI_ATTEND_REPORT_H_

#include <chrono>
#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attention_client/client.h"

/// What `attend` and `demo` say about a request and its result.
namespace attention::cli {

/// One line per tensor that is sent, and the scoring function.
std::string DescribeRequest(const client::AttendRequest& request);

/// One line per tensor that came back, who computed it, how long the call took
/// (measured here, `call_time`) and the bytes of tensors each way.
std::string DescribeResult(const client::AttendRequest& request,
                           const client::AttendResult& result,
                           std::chrono::nanoseconds call_time);

/// The largest absolute difference of two tensors' elements; infinite where one
/// is NaN and the other is not, or infinities differ. INVALID_ARGUMENT where
/// their shapes do.
absl::StatusOr<double> LargestDifference(const Tensor& actual,
                                         const Tensor& expected);

/// Prints the difference from each of `expected` ("output", "weights", "lse")
/// to stdout; an error where a shape differs or a difference is above
/// `tolerance`.
absl::Status CompareWithExpected(const std::map<std::string, Tensor>& expected,
                                 const client::AttendResult& result,
                                 std::optional<double> tolerance);

/// Writes every result that there is, with the backend and the kernel as
/// metadata.
absl::Status WriteResult(const std::string& path,
                         const client::AttendResult& result);

}  // namespace attention::cli

#endif  // ATTENTION_CLIENT_CLI_ATTEND_REPORT_H_
