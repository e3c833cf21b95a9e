#include "server/shards/shard_service.h"

#include <memory>
#include <string>
#include <utility>

#include "server/request/request_limits.h"
#include "server/services/answer.h"
#include "server/services/grpc_call.h"
#include "server/shards/part_operation.h"
#include "server/shards/shard_call.h"

namespace attention::server {
namespace {

std::string AuthorizationOf(const grpc::CallbackServerContext& context) {
  const auto found = context.client_metadata().find("authorization");
  if (found == context.client_metadata().end()) return "";
  return {found->second.data(), found->second.size()};
}

}  // namespace

grpc::ServerUnaryReactor* ShardService::Attend(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
    grpc::ByteBuffer* response) {
  std::shared_ptr<ShardCall> call;
  const Caller* caller = nullptr;
  const auto make = [&](CallOrigin origin) {
    caller = origin.caller.get();
    call = std::make_shared<ShardCall>(
        services_, parts_.calls,
        ShardCall::Origin{std::move(origin), AuthorizationOf(*context)},
        parts_.peers, *context, *response);
    call->Joined();
    return absl::OkStatus();
  };
  const absl::Status joined =
      JoinCall(services_, Rpc::kAttendShards, *context, make);
  if (!joined.ok()) return Answer(context, joined);
  // As UnaryCall::Begin() has it: the buffer is this call's own, and no message
  // at all means that the caller has reset the call.
  auto& message = const_cast<grpc::ByteBuffer&>(*request);
  if (!message.Valid()) call->OnCancel();
  call->Go(
      message,
      [this] {
        return std::make_shared<AttendWire>(/*on_stream=*/false, parts_.models,
                                            parts_.engine.pinned());
      },
      [this, caller](std::shared_ptr<AttendWire> wire, PartRules rules) {
        return std::make_unique<PartOperation>(
            std::move(wire), parts_.engine,
            LimitsOfRequest(parts_.options, caller),
            parts_.resident.AccessOf(caller), std::move(rules));
      });
  return call.get();
}

}  // namespace attention::server
