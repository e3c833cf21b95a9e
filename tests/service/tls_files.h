#ifndef ATTENTION_TESTS_SERVICE_TLS_FILES_H_
#define ATTENTION_TESTS_SERVICE_TLS_FILES_H_

#include <string>
#include <vector>

#include "attention_client/client.h"
#include "server/options/options.h"
#include "tests/support/certificates.h"
#include "tests/support/temporary_folder.h"

namespace attention::test {

/// The files of a server with TLS and of its callers, in a folder of their own
/// that goes with this.
class TlsFiles {
 public:
  TlsFiles() {
    Write("authority.crt", authority_.certificate());
    WriteServer(authority_);
  }

  const CertificateAuthority& authority() const { return authority_; }
  std::string Path(const std::string& name) const {
    return folder_.path() + "/" + name;
  }
  void Write(const std::string& name, const std::string& text) const {
    ReplaceFile(Path(name), text);
  }
  /// Replaces the server's certificate, and then its key.
  void WriteServer(const CertificateAuthority& signer,
                   const std::string& name = "server.test") const {
    const CertificateAndKey server =
        signer.Sign(name, {"DNS:server.test", "IP:127.0.0.1"});
    Write("server.crt", server.certificate);
    Write("server.key", server.key);
  }
  /// Of a caller with these names.
  void WriteCaller(const CertificateAuthority& signer,
                   const std::string& common_name,
                   const std::vector<std::string>& alternative_names = {}) {
    const CertificateAndKey caller =
        signer.Sign(common_name, alternative_names);
    Write("caller.crt", caller.certificate);
    Write("caller.key", caller.key);
  }

  /// Sets the server's options.
  void Use(server::ServerOptions& options, bool mutual = false) const {
    options.tls_certificate = Path("server.crt");
    options.tls_key = Path("server.key");
    if (mutual) options.tls_client_ca = Path("authority.crt");
  }
  /// A client that trusts the authority in `ca`; with the caller's certificate
  /// where it `shows` one.
  client::ClientOptions Client(bool shows = false,
                               const std::string& ca = "authority.crt") const {
    client::ClientOptions options;
    options.max_attempts = 1;
    options.tls.emplace();
    options.tls->ca_file = Path(ca);
    if (shows) {
      options.tls->certificate_file = Path("caller.crt");
      options.tls->key_file = Path("caller.key");
    }
    return options;
  }

 private:
  const TemporaryFolder folder_;
  const CertificateAuthority authority_{"test authority"};
};

}  // namespace attention::test

#endif  // ATTENTION_TESTS_SERVICE_TLS_FILES_H_
