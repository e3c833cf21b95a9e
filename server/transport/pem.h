#ifndef ATTENTION_SERVER_TRANSPORT_PEM_H_
#define ATTENTION_SERVER_TRANSPORT_PEM_H_

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/x509.h>

#include <memory>
#include <string>

namespace attention::server {

// OpenSSL's objects, each with an owner.
using Bio = std::unique_ptr<BIO, decltype(&::BIO_free)>;
using Certificate = std::unique_ptr<X509, decltype(&::X509_free)>;
using Key = std::unique_ptr<EVP_PKEY, decltype(&::EVP_PKEY_free)>;

/// What OpenSSL reads `pem` by, which must live as long.
inline Bio ReaderOf(const std::string& pem) {
  return {::BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())),
          &::BIO_free};
}

}  // namespace attention::server

#endif  // ATTENTION_SERVER_TRANSPORT_PEM_H_
