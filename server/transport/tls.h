#ifndef ATTENTION_SERVER_TRANSPORT_TLS_H_
#define ATTENTION_SERVER_TRANSPORT_TLS_H_

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "server/base/file_watch.h"
#include "server/options/options.h"
#include "server/transport/private_file.h"
#include "server/transport/tls_context.h"

namespace attention::server {

/// Encryption of connections, with certificates that are read again when they
/// change, over gRPC and over HTTP. gRPC 1.51 can watch files by itself, but
/// takes what it finds: a certificate beside the key of another one, or a file
/// that is half written, and every new connection fails. So the files are read
/// and checked here, and what is right is put where gRPC looks.
class Tls {
 public:
  /// As ReadTlsFiles(); the options name a certificate.
  static absl::StatusOr<std::unique_ptr<Tls>> Create(
      const ServerOptions& options);

  /// Has the files read at once, changed or not, on a thread of its own.
  void ReadSoon() { watch_->CallSoon(); }

  /// For gRPC's server. New connections follow the files within 3 s; those that
  /// are open stay as they are.
  const std::shared_ptr<grpc::ServerCredentials>& credentials() const {
    return credentials_;
  }

  /// For channels to --peers, which are shown this server's certificate; null
  /// where there is no --peers-ca. They follow the files likewise.
  std::shared_ptr<grpc::ChannelCredentials> PeerCredentials() const;

  /// For a new connection over HTTP, by the files as they were read last. From
  /// any thread.
  TlsContext context() const {
    const std::lock_guard lock(mutex_);
    return context_;
  }

 private:
  explicit Tls(const ServerOptions& options) : options_(options) {}

  // Reads the files and puts them where gRPC looks. What they hold, for the
  // log.
  absl::StatusOr<std::string> Publish();
  void MakeCredentials();
  void ReadAgain();

  const ServerOptions options_;
  mutable std::mutex mutex_;  // of what Publish() sets
  PrivateFile identity_;      // chain and key
  PrivateFile client_ca_;     // where callers show certificates
  PrivateFile peers_ca_;      // where other servers are asked
  TlsContext context_;
  std::shared_ptr<grpc::ServerCredentials> credentials_;
  std::optional<FileWatch> watch_;  // ends before what it writes to
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_TRANSPORT_TLS_H_
