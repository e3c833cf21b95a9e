#include "server/shards/peer_status.h"

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "attention/v1/attention.pb.h"
#include "proto/status_details.h"

namespace attention::server {
namespace {

constexpr char kShardError[] = "type.googleapis.com/attention.v1.ShardError";

}  // namespace

absl::Status StatusOfPeer(const grpc::Status& status,
                          const std::string& target) {
  // Both have gRPC's numbers.
  const auto code = static_cast<absl::StatusCode>(status.error_code());
  absl::Status further(code, status.error_message());
  TakeStatusDetails(status.error_details(), further);
  if (further.GetPayload(kShardError)) return further;
  absl::Status told(code, absl::StrCat(status.error_message(),
                                       " (of the server ", target, ")"));
  TakeStatusDetails(status.error_details(), told);
  v1::ShardError error;
  error.set_target(target);
  told.SetPayload(kShardError, absl::Cord(error.SerializeAsString()));
  return told;
}

}  // namespace attention::server
