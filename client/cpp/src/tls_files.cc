#include "client/cpp/src/tls_files.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client/cpp/src/security.h"

namespace attention::client {
namespace {

constexpr char kNoCertificate[] = "holds no certificate (expected PEM)";

// OpenSSL's objects, each with an owner.
using Bio = std::unique_ptr<BIO, decltype(&::BIO_free)>;
using Certificate = std::unique_ptr<X509, decltype(&::X509_free)>;
using PrivateKey = std::unique_ptr<EVP_PKEY, decltype(&::EVP_PKEY_free)>;

absl::Status Unusable(absl::string_view field, absl::string_view path,
                      absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": '", path, "' ", why));
}

absl::Status ReadOption(const char* field, const std::string& path,
                        std::string& text) {
  if (path.empty()) return absl::OkStatus();
  text = ReadFile(path);
  if (!text.empty()) return absl::OkStatus();
  return Unusable(field, path, "cannot be read, or is empty");
}

// What OpenSSL reads `pem` by, which must live as long.
Bio ReaderOf(const std::string& pem) {
  return {::BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())),
          &::BIO_free};
}

// The first one, by the call that gRPC makes; null where there is none.
Certificate CertificateIn(const std::string& pem) {
  const Bio bio = ReaderOf(pem);
  Certificate certificate(
      ::PEM_read_bio_X509_AUX(bio.get(), nullptr, nullptr, nullptr),
      &::X509_free);
  ::ERR_clear_error();
  return certificate;
}

// Likewise. The empty passphrase is gRPC's: nobody is there to type one.
PrivateKey PrivateKeyIn(const std::string& pem) {
  const Bio bio = ReaderOf(pem);
  PrivateKey key(::PEM_read_bio_PrivateKey(bio.get(), nullptr, nullptr,
                                           const_cast<char*>("")),
                 &::EVP_PKEY_free);
  ::ERR_clear_error();
  return key;
}

absl::Status CheckPair(const TlsOptions& tls,
                       const grpc::SslCredentialsOptions& pem) {
  const Certificate certificate = CertificateIn(pem.pem_cert_chain);
  if (certificate == nullptr) {
    return Unusable("certificate_file", tls.certificate_file, kNoCertificate);
  }
  const PrivateKey key = PrivateKeyIn(pem.pem_private_key);
  if (key == nullptr) {
    return Unusable(
        "key_file", tls.key_file,
        "holds no private key (expected PEM, without a passphrase)");
  }
  const bool belong =
      ::X509_check_private_key(certificate.get(), key.get()) == 1;
  ::ERR_clear_error();
  if (belong) return absl::OkStatus();
  return Unusable("key_file", tls.key_file,
                  absl::StrCat("is not the key of the certificate in '",
                               tls.certificate_file, "'"));
}

}  // namespace

absl::StatusOr<grpc::SslCredentialsOptions> ReadTlsFiles(
    const TlsOptions& tls) {
  grpc::SslCredentialsOptions pem;
  absl::Status status = ReadOption("ca_file", tls.ca_file, pem.pem_root_certs);
  status.Update(
      ReadOption("certificate_file", tls.certificate_file, pem.pem_cert_chain));
  status.Update(ReadOption("key_file", tls.key_file, pem.pem_private_key));
  if (!status.ok()) return status;
  if (!tls.ca_file.empty() && CertificateIn(pem.pem_root_certs) == nullptr) {
    return Unusable("ca_file", tls.ca_file, kNoCertificate);
  }
  if (!tls.certificate_file.empty()) status = CheckPair(tls, pem);
  if (!status.ok()) return status;
  return pem;
}

}  // namespace attention::client
