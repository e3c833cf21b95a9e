#include "server/services/grpc_call.h"

#include <string>
#include <utility>

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

}  // namespace attention::server
