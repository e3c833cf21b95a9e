#include "server/services/caller_of_call.h"

#include <grpcpp/security/auth_context.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>

#include <array>
#include <optional>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace attention::server {
namespace {

// Of passes; another one in each process, none where nothing is random. (What
// gRPC says of a call's other end would not do: it forgets it where the call is
// cancelled.)
const std::string& Key() {
  static const auto& key = *new std::string([] {
    std::array<char, 32> bytes{};
    const bool random =
        ::RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()),
                     bytes.size()) == 1;
    return random ? absl::BytesToHexString({bytes.data(), bytes.size()}) : "";
  }());
  return key;
}

// The name in a pass; none where the pass is not of this process.
std::optional<absl::string_view> NameInPass(absl::string_view pass) {
  const std::string& key = Key();
  if (key.empty() || pass.size() < key.size() ||
      ::CRYPTO_memcmp(pass.data(), key.data(), key.size()) != 0) {
    return std::nullopt;
  }
  return pass.substr(key.size());
}

absl::string_view View(const grpc::string_ref& text) {
  return {text.data(), text.size()};
}

}  // namespace

std::string PassOf(const Caller& caller) {
  return absl::StrCat(Key(), caller.name);
}

absl::StatusOr<CallerPtr> CallerOfCall(const Callers* callers,
                                       const grpc::ServerContextBase& context) {
  if (callers == nullptr) return CallerPtr();
  const auto& metadata = context.client_metadata();
  if (const auto pass = metadata.find(kCallerPass); pass != metadata.end()) {
    if (const auto name = NameInPass(View(pass->second))) {
      return callers->Named(*name);
    }
  }
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
  return absl::PermissionDeniedError(absl::StrCat(
      "the caller ", caller->name, " may not do this (expected ",
      right == Right::kSharedMemory ? "shared_memory" : "model_control",
      " in its `may`, in the server's --callers-file)"));
}

SharedMemoryAccess SharedMemoryOf(const Caller* caller,
                                  const SharedMemoryRegistry& regions,
                                  const ServerOptions& options) {
  if (!options.allow_shared_memory) return {};
  return {&regions, CheckRight(caller, Right::kSharedMemory).ok()};
}

absl::Status CheckCall(const Callers* callers,
                       const grpc::ServerContextBase& context, Right right) {
  const absl::StatusOr<CallerPtr> caller = CallerOfCall(callers, context);
  return caller.ok() ? CheckRight(caller->get(), right) : caller.status();
}

absl::Status CheckCall(const Callers* callers,
                       const grpc::ServerContextBase& context) {
  return CallerOfCall(callers, context).status();
}

}  // namespace attention::server
