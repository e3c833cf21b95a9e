#include "server/transport/tls_context.h"

#include <arpa/inet.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <array>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/transport/pem.h"

namespace attention::server {
namespace {

// With TLS 1.2; keys that are stolen later open nothing that was recorded.
constexpr char kCiphers[] = "ECDHE+AESGCM:ECDHE+CHACHA20";

// One name, with its length before it.
constexpr unsigned char kAlpn[] = "\x08http/1.1";

std::vector<Certificate> Certificates(const std::string& pem) {
  std::vector<Certificate> all;
  const Bio bio = ReaderOf(pem);
  while (X509* const next =
             ::PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) {
    all.emplace_back(next, &::X509_free);
  }
  ::ERR_clear_error();  // the end of the file is one
  return all;
}

absl::Status Refused(absl::string_view what) {
  std::array<char, 256> why{};
  ::ERR_error_string_n(::ERR_get_error(), why.data(), why.size());
  ::ERR_clear_error();
  return absl::InvalidArgumentError(
      absl::StrCat(what, ": OpenSSL says ", why.data()));
}

int ChooseProtocol(SSL* /*ssl*/, const unsigned char** chosen,
                   unsigned char* size, const unsigned char* offered,
                   unsigned offered_size, void* /*nothing*/) {
  const int answer =
      ::SSL_select_next_proto(const_cast<unsigned char**>(chosen), size, kAlpn,
                              sizeof(kAlpn) - 1, offered, offered_size);
  return answer == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK
                                          : SSL_TLSEXT_ERR_ALERT_FATAL;
}

absl::Status UseIdentity(SSL_CTX* context, const TlsMaterial& material) {
  const std::vector<Certificate> chain = Certificates(material.chain);
  const Bio bio = ReaderOf(material.key);
  const Key key(::PEM_read_bio_PrivateKey(bio.get(), nullptr, nullptr, nullptr),
                &::EVP_PKEY_free);
  if (chain.empty() ||
      ::SSL_CTX_use_certificate(context, chain.front().get()) != 1) {
    return Refused("--tls-certificate");
  }
  if (key == nullptr || ::SSL_CTX_use_PrivateKey(context, key.get()) != 1) {
    return Refused("--tls-key");
  }
  for (size_t i = 1; i < chain.size(); ++i) {
    if (SSL_CTX_add1_chain_cert(context, chain[i].get()) != 1) {
      return Refused("--tls-certificate");
    }
  }
  return absl::OkStatus();
}

absl::Status AskForCertificates(SSL_CTX* context, const std::string& pem) {
  X509_STORE* const trusted = ::SSL_CTX_get_cert_store(context);
  for (const Certificate& authority : Certificates(pem)) {
    if (::X509_STORE_add_cert(trusted, authority.get()) != 1 ||
        ::SSL_CTX_add_client_CA(context, authority.get()) != 1) {
      return Refused("--tls-client-ca");
    }
  }
  ::SSL_CTX_set_verify(context,
                       SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT,
                       /*callback=*/nullptr);
  return absl::OkStatus();
}

std::string Utf8(const ASN1_STRING* text) {
  unsigned char* bytes = nullptr;
  const int size = ::ASN1_STRING_to_UTF8(&bytes, text);
  if (size < 0) {
    ::ERR_clear_error();
    return "";
  }
  std::string utf8(reinterpret_cast<const char*>(bytes),
                   static_cast<size_t>(size));
  ::OPENSSL_free(bytes);
  return utf8;
}

std::string IpAddress(const ASN1_OCTET_STRING* address) {
  const int size = ::ASN1_STRING_length(address);
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (size != 4 && size != 16) return "";
  ::inet_ntop(size == 4 ? AF_INET : AF_INET6, ::ASN1_STRING_get0_data(address),
              text.data(), text.size());
  return text.data();
}

std::string AlternativeName(const GENERAL_NAME& name) {
  switch (name.type) {
    case GEN_DNS:
      return Utf8(name.d.dNSName);
    case GEN_EMAIL:
      return Utf8(name.d.rfc822Name);
    case GEN_URI:
      return Utf8(name.d.uniformResourceIdentifier);
    case GEN_IPADD:
      return IpAddress(name.d.iPAddress);
    default:
      return "";
  }
}

std::string CommonName(const X509& certificate) {
  const X509_NAME* const subject = ::X509_get_subject_name(&certificate);
  const int at = ::X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
  if (at < 0) return "";
  return Utf8(::X509_NAME_ENTRY_get_data(::X509_NAME_get_entry(subject, at)));
}

}  // namespace

absl::StatusOr<TlsContext> MakeTlsContext(const TlsMaterial& material) {
  TlsContext context(::SSL_CTX_new(::TLS_server_method()), &::SSL_CTX_free);
  if (context == nullptr) return absl::ResourceExhaustedError("no memory");
  SSL_CTX* const raw = context.get();
  SSL_CTX_set_min_proto_version(raw, TLS1_2_VERSION);
  ::SSL_CTX_set_options(raw, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET |
                                 SSL_OP_CIPHER_SERVER_PREFERENCE |
                                 SSL_OP_PRIORITIZE_CHACHA);
  SSL_CTX_set_session_cache_mode(raw, SSL_SESS_CACHE_OFF);
  ::SSL_CTX_set_num_tickets(raw, 0);
  ::SSL_CTX_set_alpn_select_cb(raw, &ChooseProtocol, nullptr);
  if (::SSL_CTX_set_cipher_list(raw, kCiphers) != 1) {
    return Refused("OpenSSL's ciphers");
  }
  absl::Status status = UseIdentity(raw, material);
  if (status.ok() && !material.client_ca.empty()) {
    status = AskForCertificates(raw, material.client_ca);
  }
  if (!status.ok()) return status;
  return context;
}

std::vector<std::string> NamesInCertificate(const X509& certificate) {
  std::vector<std::string> names;
  const std::unique_ptr<GENERAL_NAMES, decltype(&::GENERAL_NAMES_free)> all(
      static_cast<GENERAL_NAMES*>(::X509_get_ext_d2i(
          &certificate, NID_subject_alt_name, nullptr, nullptr)),
      &::GENERAL_NAMES_free);
  if (all == nullptr) {
    names.push_back(CommonName(certificate));
  } else {
    for (int i = 0; i < sk_GENERAL_NAME_num(all.get()); ++i) {
      names.push_back(AlternativeName(*sk_GENERAL_NAME_value(all.get(), i)));
    }
  }
  std::erase(names, "");
  return names;
}

}  // namespace attention::server
