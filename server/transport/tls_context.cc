#include "server/transport/tls_context.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ssl/context.hpp>
#include <exception>
#include <memory>

#include "absl/strings/str_cat.h"

namespace attention::server {
namespace {

namespace ssl = boost::asio::ssl;

using Error = boost::system::error_code;

// With TLS 1.2; keys that are stolen later open nothing that was recorded.
constexpr char kCiphers[] = "ECDHE+AESGCM:ECDHE+CHACHA20";

// One name, with its length before it.
constexpr unsigned char kAlpn[] = "\x08http/1.1";

absl::Status Refused(absl::string_view what, const Error& error) {
  return absl::InvalidArgumentError(
      absl::StrCat(what, ": OpenSSL says ", error.message()));
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

absl::Status UseIdentity(ssl::context& context, const TlsMaterial& material) {
  Error error;
  context.use_certificate_chain(boost::asio::buffer(material.chain), error);
  if (error) return Refused("--tls-certificate", error);
  context.use_private_key(boost::asio::buffer(material.key), ssl::context::pem,
                          error);
  if (error) return Refused("--tls-key", error);
  return absl::OkStatus();
}

absl::Status AskForCertificates(ssl::context& context, const std::string& pem) {
  Error error;
  context.add_certificate_authority(boost::asio::buffer(pem), error);
  if (error) return Refused("--tls-client-ca", error);
  context.set_verify_mode(ssl::verify_peer | ssl::verify_fail_if_no_peer_cert,
                          error);
  if (error) return Refused("--tls-client-ca", error);
  // Whom a caller's certificate may be of, for those that have several.
  SSL_CTX* const raw = context.native_handle();
  const STACK_OF(X509_OBJECT)* const trusted =
      ::X509_STORE_get0_objects(::SSL_CTX_get_cert_store(raw));
  for (int i = 0; i < sk_X509_OBJECT_num(trusted); ++i) {
    ::SSL_CTX_add_client_CA(
        raw, ::X509_OBJECT_get0_X509(sk_X509_OBJECT_value(trusted, i)));
  }
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
  TlsContext context;
  try {
    context = std::make_shared<ssl::context>(ssl::context::tls_server);
  } catch (const std::exception& error) {
    return absl::ResourceExhaustedError(error.what());
  }
  SSL_CTX* const raw = context->native_handle();
  SSL_CTX_set_min_proto_version(raw, TLS1_2_VERSION);
  ::SSL_CTX_set_options(raw, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET |
                                 SSL_OP_CIPHER_SERVER_PREFERENCE |
                                 SSL_OP_PRIORITIZE_CHACHA);
  SSL_CTX_set_session_cache_mode(raw, SSL_SESS_CACHE_OFF);
  ::SSL_CTX_set_num_tickets(raw, 0);
  ::SSL_CTX_set_alpn_select_cb(raw, &ChooseProtocol, nullptr);
  if (::SSL_CTX_set_cipher_list(raw, kCiphers) != 1) {
    ::ERR_clear_error();
    return absl::InternalError("OpenSSL knows none of the ciphers");
  }
  absl::Status status = UseIdentity(*context, material);
  if (status.ok() && !material.client_ca.empty()) {
    status = AskForCertificates(*context, material.client_ca);
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
