#include "server/scheduling/retry_after.h"

#include <google/protobuf/duration.pb.h>
#include <google/protobuf/unknown_field_set.h>
#include <google/protobuf/util/time_util.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/cord.h"
#include "core/store/store.h"

namespace attention::server {
namespace {

constexpr char kRetryInfo[] = "type.googleapis.com/google.rpc.RetryInfo";
constexpr int kRetryDelay = 1;  // the message's one field

}  // namespace

absl::Status RetryAfter(absl::Status status, std::chrono::nanoseconds time) {
  const auto milliseconds =
      std::chrono::ceil<std::chrono::milliseconds>(time).count();
  google::protobuf::UnknownFieldSet retry_info;
  retry_info.AddLengthDelimited(
      kRetryDelay, google::protobuf::util::TimeUtil::MillisecondsToDuration(
                       std::max<int64_t>(milliseconds, 1))
                       .SerializeAsString());
  std::string bytes;
  retry_info.SerializeToString(&bytes);
  status.SetPayload(kRetryInfo, absl::Cord(bytes));
  return status;
}

absl::Status OrTryAgain(absl::Status status, bool repeatable) {
  const bool never_fits = status.ErasePayload(store::kNeverFits);
  if (never_fits || !repeatable || !absl::IsResourceExhausted(status)) {
    return status;
  }
  return RetryAfter(std::move(status), kTryAgain);
}

std::optional<std::chrono::milliseconds> RetryTimeOf(
    const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kRetryInfo);
  google::protobuf::UnknownFieldSet retry_info;
  google::protobuf::Duration delay;
  if (!payload.has_value() ||
      !retry_info.ParseFromString(static_cast<std::string>(*payload)) ||
      retry_info.field_count() != 1 ||
      !delay.ParseFromString(retry_info.field(0).length_delimited())) {
    return std::nullopt;
  }
  return std::chrono::milliseconds(
      google::protobuf::util::TimeUtil::DurationToMilliseconds(delay));
}

}  // namespace attention::server
