#include "server/services/caller_of_call.h"

#include <grpcpp/security/auth_context.h>

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"

namespace attention::server {
namespace {

absl::string_view View(const grpc::string_ref& text) {
  return {text.data(), text.size()};
}

}  // namespace

absl::StatusOr<CallerPtr> CallerOfCall(const Callers* callers,
                                       const grpc::ServerContextBase& context) {
  if (callers == nullptr) return CallerPtr();
  const auto& metadata = context.client_metadata();
  Credentials credentials;
  const auto header = metadata.find("authorization");
  if (header != metadata.end()) {
    credentials.authorization = View(header->second);
  } else {
    // The alternative names, or the common name where there is none.
    for (const grpc::string_ref& name :
         context.auth_context()->GetPeerIdentity()) {
      credentials.certificate_names.emplace_back(View(name));
    }
  }
  return callers->Find(credentials, context.peer());
}

absl::Status CheckRight(const Caller* caller, Right right) {
  if (caller == nullptr || caller->Has(right)) return absl::OkStatus();
  const auto* const known =
      std::find_if(std::begin(kRights), std::end(kRights),
                   [right](const auto& one) { return one.first == right; });
  return absl::PermissionDeniedError(absl::StrCat(
      "the caller ", caller->name, " may not do this (expected ", known->second,
      " in its `may`, in the server's --callers-file)"));
}

SharedMemoryAccess SharedMemoryOf(const Caller* caller,
                                  const SharedMemoryRegistry& regions,
                                  const ServerOptions& options) {
  if (!options.allow_shared_memory) return {};
  return {&regions, CheckRight(caller, Right::kSharedMemory).ok()};
}

}  // namespace attention::server
