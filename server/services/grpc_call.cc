#include "server/services/grpc_call.h"

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "server/base/out_of_memory.h"
#include "server/scheduling/retry_after.h"
#include "server/services/caller_of_call.h"
#include "server/telemetry/trace_context.h"

namespace attention::server {
namespace {

std::string TakeTraceParent(grpc::CallbackServerContext& context) {
  const auto found = context.client_metadata().find(kTraceParent);
  if (found == context.client_metadata().end()) return "";
  std::string value =
      ReadTraceParent({found->second.data(), found->second.size()});
  if (!value.empty()) context.AddTrailingMetadata(kTraceParent, value);
  return value;
}

}  // namespace

CallOrigin OriginOf(grpc::CallbackServerContext& context,
                    std::shared_ptr<const Caller> caller) {
  return {.peer = context.peer(),
          .caller = std::move(caller),
          .deadline = context.deadline(),
          .trace_parent = TakeTraceParent(context)};
}

absl::Status JoinCall(const TaskServices& services, Rpc rpc,
                      grpc::CallbackServerContext& context,
                      absl::FunctionRef<absl::Status(CallOrigin)> make) {
  const auto join = [&] {
    absl::StatusOr<CallerPtr> caller = CallerOfCall(services.callers, context);
    return caller.ok() ? make(OriginOf(context, *std::move(caller)))
                       : caller.status();
  };
  absl::Status joined = WithoutBadAlloc(join, OutOfMemoryForNow);
  if (!joined.ok()) services.CountTurnedAway(rpc, joined);
  return joined;
}

}  // namespace attention::server
