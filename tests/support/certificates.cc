#include "tests/support/certificates.h"

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "absl/strings/str_join.h"

namespace attention::test {
namespace {

constexpr int64_t kSecondsOfADay = int64_t{24} * 60 * 60;
constexpr int64_t kSecondsOfAnHour = int64_t{60} * 60;
constexpr long kVersion3 = 2;  // NOLINT(google-runtime-int): OpenSSL's type

using Key = std::unique_ptr<EVP_PKEY, decltype(&::EVP_PKEY_free)>;
using Certificate = std::unique_ptr<X509, decltype(&::X509_free)>;

Key NewKey() { return {::EVP_EC_gen("P-256"), &::EVP_PKEY_free}; }

std::string Text(BIO* bio) {
  char* begin = nullptr;
  const auto size = BIO_get_mem_data(bio, &begin);
  std::string text(begin, static_cast<size_t>(size));
  ::BIO_free(bio);
  return text;
}

std::string Pem(X509* certificate) {
  BIO* bio = ::BIO_new(::BIO_s_mem());
  ::PEM_write_bio_X509(bio, certificate);
  return Text(bio);
}

std::string Pem(EVP_PKEY* key) {
  BIO* bio = ::BIO_new(::BIO_s_mem());
  ::PEM_write_bio_PrivateKey(bio, key, nullptr, nullptr, 0, nullptr, nullptr);
  return Text(bio);
}

void Extend(X509* certificate, int kind, const std::string& value) {
  X509_EXTENSION* extension =
      ::X509V3_EXT_conf_nid(nullptr, nullptr, kind, value.c_str());
  if (extension == nullptr) std::abort();
  ::X509_add_ext(certificate, extension, -1);
  ::X509_EXTENSION_free(extension);
}

Certificate Unsigned(const std::string& name, EVP_PKEY* key) {
  static int64_t serial = 0;
  Certificate certificate(::X509_new(), &::X509_free);
  ::X509_set_version(certificate.get(), kVersion3);
  ::ASN1_INTEGER_set_int64(::X509_get_serialNumber(certificate.get()),
                           ++serial);
  // From yesterday on: clocks differ.
  ::X509_gmtime_adj(::X509_getm_notBefore(certificate.get()), -kSecondsOfADay);
  ::X509_gmtime_adj(::X509_getm_notAfter(certificate.get()), kSecondsOfADay);
  ::X509_set_pubkey(certificate.get(), key);
  ::X509_NAME_add_entry_by_txt(
      ::X509_get_subject_name(certificate.get()), "CN", MBSTRING_UTF8,
      reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  return certificate;
}

}  // namespace

struct CertificateAuthority::Impl {
  Key key = NewKey();
  Certificate certificate{nullptr, &::X509_free};
};

CertificateAuthority::CertificateAuthority(const std::string& name)
    : impl_(std::make_unique<Impl>()) {
  impl_->certificate = Unsigned(name, impl_->key.get());
  X509* const own = impl_->certificate.get();
  ::X509_set_issuer_name(own, ::X509_get_subject_name(own));
  Extend(own, NID_basic_constraints, "critical,CA:TRUE");
  ::X509_sign(own, impl_->key.get(), ::EVP_sha256());
  certificate_ = Pem(own);
}

CertificateAuthority::~CertificateAuthority() = default;

CertificateAndKey CertificateAuthority::Sign(
    const std::string& common_name,
    const std::vector<std::string>& alternative_names) const {
  return SignUntil(kSecondsOfADay, common_name, alternative_names);
}

CertificateAndKey CertificateAuthority::SignExpired(
    const std::string& common_name,
    const std::vector<std::string>& alternative_names) const {
  return SignUntil(-kSecondsOfAnHour, common_name, alternative_names);
}

CertificateAndKey CertificateAuthority::SignUntil(
    int64_t seconds_from_now, const std::string& common_name,
    const std::vector<std::string>& alternative_names) const {
  const Key key = NewKey();
  const Certificate certificate = Unsigned(common_name, key.get());
  ::X509_gmtime_adj(::X509_getm_notAfter(certificate.get()), seconds_from_now);
  ::X509_set_issuer_name(certificate.get(),
                         ::X509_get_subject_name(impl_->certificate.get()));
  if (!alternative_names.empty()) {
    Extend(certificate.get(), NID_subject_alt_name,
           absl::StrJoin(alternative_names, ","));
  }
  ::X509_sign(certificate.get(), impl_->key.get(), ::EVP_sha256());
  return {Pem(certificate.get()), Pem(key.get())};
}

void ReplaceFile(const std::string& path, const std::string& text) {
  const std::string other = path + ".next";
  std::ofstream(other, std::ios::binary) << text;
  if (std::rename(other.c_str(), path.c_str()) != 0) std::abort();
}

}  // namespace attention::test
