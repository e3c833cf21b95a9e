#include "server/base/version.h"

#include <google/protobuf/stubs/common.h>
#include <grpcpp/grpcpp.h>
#include <openssl/crypto.h>
#include <spdlog/version.h>
#include <tbb/version.h>

#include "absl/base/config.h"
#include "absl/strings/str_cat.h"

namespace attention::server {

const char* Version() { return ATTENTION_VERSION; }

// As the libraries say that are loaded, where they do; else those that this was
// built with.
std::string LinkedVersions() {
  constexpr int kMajor =
      1'000;  // of a oneTBB interface version: 12080 is 2021.8
  return absl::StrCat(
      "gRPC ", grpc::Version(), ", Protobuf ",
      google::protobuf::internal::VersionString(GOOGLE_PROTOBUF_VERSION),
      ", OpenSSL ", ::OpenSSL_version(OPENSSL_VERSION_STRING), ", oneTBB ",
      TBB_VERSION_MAJOR, ".", (TBB_runtime_interface_version() % kMajor) / 10,
      ", Abseil ", ABSL_LTS_RELEASE_VERSION, ", spdlog ", SPDLOG_VER_MAJOR, ".",
      SPDLOG_VER_MINOR, ".", SPDLOG_VER_PATCH);
}

}  // namespace attention::server
