#ifndef ATTENTION_SERVER_TRANSPORT_TLS_FILES_H_
#define ATTENTION_SERVER_TRANSPORT_TLS_FILES_H_

#include <string>

#include "absl/status/statusor.h"
#include "server/options/options.h"

namespace attention::server {

/// What TLS needs, in PEM: checked, so that a handshake can use it.
struct TlsMaterial {
  std::string chain;      // this server's certificate, then its issuers'
  std::string key;        // of the first of them
  std::string client_ca;  // who signs callers' certificates; empty: nobody asks
  /// "attention.example.org, until Nov 22 12:00:00 2027 GMT", for the log.
  std::string summary;
  /// Who signs the certificates of --peers; empty: none are asked over TLS.
  std::string peers_ca = {};
};

/// Reads the files that the options name. INVALID_ARGUMENT with the option and
/// the file where one cannot be read, holds no certificate or no key, where the
/// key is encrypted, or is not that of the certificate.
absl::StatusOr<TlsMaterial> ReadTlsFiles(const ServerOptions& options);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_TRANSPORT_TLS_FILES_H_
