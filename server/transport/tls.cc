#include "server/transport/tls.h"

#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <spdlog/spdlog.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "server/transport/tls_files.h"

namespace attention::server {
namespace {

// The least that gRPC takes.
constexpr unsigned kSecondsBetweenLooks = 1;

}  // namespace

absl::StatusOr<std::unique_ptr<Tls>> Tls::Create(const ServerOptions& options) {
  auto tls = absl::WrapUnique(new Tls(options));
  std::vector<std::string> files = {options.tls_certificate, options.tls_key};
  if (!options.tls_client_ca.empty()) files.push_back(options.tls_client_ca);
  if (!options.peers_ca.empty()) files.push_back(options.peers_ca);
  // Before they are read: what changes meanwhile is read again.
  tls->watch_.emplace(std::move(files),
                      [raw = tls.get()] { raw->ReadAgain(); });
  const absl::StatusOr<std::string> what = tls->Publish();
  if (!what.ok()) return what.status();
  spdlog::info(absl::StrCat(
      "TLS with the certificate of ", *what,
      options.tls_client_ca.empty() ? "" : "; callers must show theirs"));
  tls->MakeCredentials();
  return tls;
}

absl::StatusOr<std::string> Tls::Publish() {
  absl::StatusOr<TlsMaterial> material = ReadTlsFiles(options_);
  if (!material.ok()) return material.status();
  absl::StatusOr<TlsContext> context = MakeTlsContext(*material);
  if (!context.ok()) return context.status();
  const std::lock_guard lock(mutex_);
  // Both in one file, which is replaced at once: each is found by its heading.
  absl::Status status =
      identity_.Replace(absl::StrCat(material->chain, "\n", material->key));
  if (status.ok() && !material->client_ca.empty()) {
    status = client_ca_.Replace(material->client_ca);
  }
  if (status.ok() && !material->peers_ca.empty()) {
    status = peers_ca_.Replace(material->peers_ca);
  }
  if (!status.ok()) return status;
  context_ = *std::move(context);
  return std::move(material->summary);
}

void Tls::MakeCredentials() {
  using grpc::experimental::FileWatcherCertificateProvider;
  const bool mutual = !options_.tls_client_ca.empty();
  grpc::experimental::TlsServerCredentialsOptions credentials(
      std::make_shared<FileWatcherCertificateProvider>(
          identity_.path(), identity_.path(), mutual ? client_ca_.path() : "",
          kSecondsBetweenLooks));
  credentials.watch_identity_key_cert_pairs();
  if (mutual) {
    credentials.watch_root_certs();
    credentials.set_cert_request_type(
        GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  }
  credentials_ = grpc::experimental::TlsServerCredentials(credentials);
}

std::shared_ptr<grpc::ChannelCredentials> Tls::PeerCredentials() const {
  if (options_.peers_ca.empty()) return nullptr;
  grpc::experimental::TlsChannelCredentialsOptions credentials;
  credentials.set_certificate_provider(
      std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
          identity_.path(), identity_.path(), peers_ca_.path(),
          kSecondsBetweenLooks));
  credentials.watch_root_certs();
  credentials.watch_identity_key_cert_pairs();
  return grpc::experimental::TlsCredentials(credentials);
}

void Tls::ReadAgain() {
  const absl::StatusOr<std::string> what = Publish();
  if (what.ok()) {
    spdlog::info(
        absl::StrCat("TLS: new connections get the certificate of ", *what));
  } else {
    spdlog::error(absl::StrCat("TLS goes on with the files as they were: ",
                               what.status().message()));
  }
}

}  // namespace attention::server
