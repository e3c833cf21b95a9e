#include "server/transport/tls_files.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <cerrno>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/whole_file.h"

namespace attention::server {
namespace {

constexpr char kNoCertificate[] = "holds no certificate (expected PEM)";

// OpenSSL's objects, each with an owner.
using Bio = std::unique_ptr<BIO, decltype(&::BIO_free)>;
using Certificate = std::unique_ptr<X509, decltype(&::X509_free)>;
using Key = std::unique_ptr<EVP_PKEY, decltype(&::EVP_PKEY_free)>;

// What OpenSSL reads `pem` by, which must live as long.
Bio ReaderOf(const std::string& pem) {
  return {::BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())),
          &::BIO_free};
}

absl::Status Wrong(const char* option, const std::string& file,
                   absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat(option, ": '", file, "' ", why));
}

absl::StatusOr<std::string> Read(const char* option, const std::string& file) {
  std::optional<std::string> text = ReadWhole(file);
  if (text) return *std::move(text);
  const int error = errno;
  return Wrong(option, file,
               absl::StrCat("cannot be read: ",
                            error != 0 ? std::generic_category().message(error)
                                       : "it is empty"));
}

Certificate FirstCertificate(const std::string& pem) {
  const Bio bio = ReaderOf(pem);
  Certificate certificate(
      ::PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr), &::X509_free);
  ::ERR_clear_error();
  return certificate;
}

// Empty where no file is named.
absl::StatusOr<std::string> ReadAuthority(const char* option,
                                          const std::string& file) {
  if (file.empty()) return "";
  absl::StatusOr<std::string> pem = Read(option, file);
  if (pem.ok() && FirstCertificate(*pem) == nullptr) {
    return Wrong(option, file, kNoCertificate);
  }
  return pem;
}

// Nobody is there to type a passphrase.
int NoPassphrase(char* /*buffer*/, int /*size*/, int /*rwflag*/, void* asked) {
  *static_cast<bool*>(asked) = true;
  return -1;
}

absl::StatusOr<Key> ReadKey(const std::string& file, const std::string& pem) {
  bool encrypted = false;
  const Bio bio = ReaderOf(pem);
  Key key(
      ::PEM_read_bio_PrivateKey(bio.get(), nullptr, &NoPassphrase, &encrypted),
      &::EVP_PKEY_free);
  ::ERR_clear_error();
  if (key != nullptr) return key;
  return Wrong("--tls-key", file,
               encrypted ? "is encrypted (expected a key without a passphrase)"
                         : "holds no private key (expected PEM)");
}

std::string NameForLog(const X509& certificate) {
  std::string name(256, '\0');
  const int size = ::X509_NAME_get_text_by_NID(
      ::X509_get_subject_name(&certificate), NID_commonName, name.data(),
      static_cast<int>(name.size()));
  name.resize(size > 0 ? static_cast<size_t>(size) : 0);
  return name.empty() ? "a certificate without a name" : name;
}

std::string Summary(const X509& certificate) {
  const Bio text(::BIO_new(::BIO_s_mem()), &::BIO_free);
  ::ASN1_TIME_print(text.get(), ::X509_get0_notAfter(&certificate));
  char* begin = nullptr;
  const int64_t size = BIO_get_mem_data(text.get(), &begin);
  const bool expired =
      ::X509_cmp_current_time(::X509_get0_notAfter(&certificate)) < 0;
  return absl::StrCat(NameForLog(certificate),
                      expired ? ", which EXPIRED on " : ", until ",
                      absl::string_view(begin, static_cast<size_t>(size)));
}

}  // namespace

absl::StatusOr<TlsMaterial> ReadTlsFiles(const ServerOptions& options) {
  auto chain = Read("--tls-certificate", options.tls_certificate);
  if (!chain.ok()) return chain.status();
  auto key_text = Read("--tls-key", options.tls_key);
  if (!key_text.ok()) return key_text.status();
  const Certificate certificate = FirstCertificate(*chain);
  if (certificate == nullptr) {
    return Wrong("--tls-certificate", options.tls_certificate, kNoCertificate);
  }
  const auto key = ReadKey(options.tls_key, *key_text);
  if (!key.ok()) return key.status();
  if (::X509_check_private_key(certificate.get(), key->get()) != 1) {
    ::ERR_clear_error();
    return Wrong("--tls-key", options.tls_key,
                 absl::StrCat("is not the key of the certificate in '",
                              options.tls_certificate, "'"));
  }
  auto client_ca = ReadAuthority("--tls-client-ca", options.tls_client_ca);
  if (!client_ca.ok()) return client_ca.status();
  auto peers_ca = ReadAuthority("--peers-ca", options.peers_ca);
  if (!peers_ca.ok()) return peers_ca.status();
  return TlsMaterial{*std::move(chain), *std::move(key_text),
                     *std::move(client_ca), Summary(*certificate),
                     *std::move(peers_ca)};
}

}  // namespace attention::server
