#ifndef ATTENTION_SERVER_TRANSPORT_TLS_CONTEXT_H_
#define ATTENTION_SERVER_TRANSPORT_TLS_CONTEXT_H_

#include <openssl/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/transport/tls_files.h"

namespace boost::asio::ssl {
class context;
}  // namespace boost::asio::ssl

namespace attention::server {

/// What handshakes use, for the connections that gRPC does not serve.
using TlsContext = std::shared_ptr<boost::asio::ssl::context>;

/// As gRPC serves the same files: TLS 1.2 and 1.3, its ciphers, and callers
/// must show a certificate where there is a `client_ca`. ALPN is http/1.1. No
/// session is resumed: every connection is checked by the files of its time.
/// INVALID_ARGUMENT with OpenSSL's words where it does not take them.
absl::StatusOr<TlsContext> MakeTlsContext(const TlsMaterial& material);

/// Who a certificate is of, as gRPC tells it: its alternative names that are
/// text or IP addresses; its common name where it has no alternative names.
std::vector<std::string> NamesInCertificate(const X509& certificate);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_TRANSPORT_TLS_CONTEXT_H_
