#include "server/shards/peer_status.h"

#include <google/protobuf/any.pb.h>
#include <google/protobuf/unknown_field_set.h>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "attention/v1/attention.pb.h"

namespace attention::server {
namespace {

constexpr char kShardError[] = "type.googleapis.com/attention.v1.ShardError";
// Of google.rpc.Status, whose type Debian's packages do not bring.
constexpr int kStatusDetails = 3;

// What the status's details have, in `status`.
void TakeDetails(const std::string& details, absl::Status& status) {
  google::protobuf::UnknownFieldSet fields;
  if (!fields.ParseFromString(details)) return;
  for (int i = 0; i < fields.field_count(); ++i) {
    const google::protobuf::UnknownField& field = fields.field(i);
    google::protobuf::Any any;
    if (field.number() != kStatusDetails ||
        field.type() != google::protobuf::UnknownField::TYPE_LENGTH_DELIMITED ||
        !any.ParseFromString(field.length_delimited())) {
      continue;
    }
    status.SetPayload(any.type_url(), absl::Cord(any.value()));
  }
}

}  // namespace

absl::Status StatusOfPeer(const grpc::Status& status,
                          const std::string& target) {
  // Both have gRPC's numbers.
  const auto code = static_cast<absl::StatusCode>(status.error_code());
  absl::Status further(code, status.error_message());
  TakeDetails(status.error_details(), further);
  if (further.GetPayload(kShardError)) return further;
  absl::Status told(code, absl::StrCat(status.error_message(),
                                       " (of the server ", target, ")"));
  TakeDetails(status.error_details(), told);
  v1::ShardError error;
  error.set_target(target);
  told.SetPayload(kShardError, absl::Cord(error.SerializeAsString()));
  return told;
}

}  // namespace attention::server
