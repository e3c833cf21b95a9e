#include "proto/status_details.h"

#include <google/protobuf/any.pb.h>
#include <google/protobuf/duration.pb.h>
#include <google/protobuf/unknown_field_set.h>
#include <google/protobuf/util/time_util.h>

#include <algorithm>
#include <cstdint>

#include "absl/strings/cord.h"
#include "absl/types/optional.h"

namespace attention {
namespace {

using ::google::protobuf::UnknownField;
using ::google::protobuf::UnknownFieldSet;
using ::google::protobuf::util::TimeUtil;

// Fields of google.rpc.Status.
constexpr int kCode = 1;
constexpr int kMessage = 2;
constexpr int kDetails = 3;

constexpr char kRetryInfo[] = "type.googleapis.com/google.rpc.RetryInfo";
constexpr int kRetryDelay = 1;  // its one field
// A year is more than anybody waits.
constexpr int64_t kMostSeconds = int64_t{365} * 24 * 3600;

}  // namespace

std::string StatusDetails(const absl::Status& status, int code,
                          const std::string& message) {
  UnknownFieldSet fields;
  status.ForEachPayload([&](absl::string_view type, const absl::Cord& bytes) {
    google::protobuf::Any any;
    any.set_type_url(static_cast<std::string>(type));
    any.set_value(static_cast<std::string>(bytes));
    fields.AddLengthDelimited(kDetails, any.SerializeAsString());
  });
  std::string serialized;
  if (fields.empty()) return serialized;
  fields.AddVarint(kCode, static_cast<uint64_t>(code));
  fields.AddLengthDelimited(kMessage, message);
  fields.SerializeToString(&serialized);
  return serialized;
}

void TakeStatusDetails(const std::string& details, absl::Status& status) {
  UnknownFieldSet fields;
  if (!fields.ParseFromString(details)) return;
  for (int i = 0; i < fields.field_count(); ++i) {
    const UnknownField& field = fields.field(i);
    google::protobuf::Any any;
    if (field.number() != kDetails ||
        field.type() != UnknownField::TYPE_LENGTH_DELIMITED ||
        !any.ParseFromString(field.length_delimited())) {
      continue;
    }
    status.SetPayload(any.type_url(), absl::Cord(any.value()));
  }
}

void SetRetryTime(std::chrono::milliseconds time, absl::Status& status) {
  google::protobuf::Duration delay = TimeUtil::MillisecondsToDuration(
      std::clamp<int64_t>(time.count(), 1, kMostSeconds * 1000));
  UnknownFieldSet retry_info;
  retry_info.AddLengthDelimited(kRetryDelay, delay.SerializeAsString());
  std::string bytes;
  retry_info.SerializeToString(&bytes);
  status.SetPayload(kRetryInfo, absl::Cord(bytes));
}

std::optional<std::chrono::milliseconds> RetryTimeOf(
    const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kRetryInfo);
  UnknownFieldSet retry_info;
  google::protobuf::Duration delay;
  if (!payload.has_value() ||
      !retry_info.ParseFromString(static_cast<std::string>(*payload)) ||
      retry_info.field_count() != 1 ||
      retry_info.field(0).type() != UnknownField::TYPE_LENGTH_DELIMITED ||
      !delay.ParseFromString(retry_info.field(0).length_delimited()) ||
      delay.seconds() < 0 || delay.nanos() < 0) {
    return std::nullopt;
  }
  const std::chrono::seconds seconds(std::min(delay.seconds(), kMostSeconds));
  return seconds + std::chrono::ceil<std::chrono::milliseconds>(
                       std::chrono::nanoseconds(delay.nanos()));
}

}  // namespace attention
