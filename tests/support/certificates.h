#ifndef ATTENTION_TESTS_SUPPORT_CERTIFICATES_H_
#define ATTENTION_TESTS_SUPPORT_CERTIFICATES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace attention::test {

/// In PEM.
struct CertificateAndKey {
  std::string certificate;
  std::string key;
};

/// Signs certificates for tests, valid for a day.
class CertificateAuthority {
 public:
  explicit CertificateAuthority(const std::string& name);
  ~CertificateAuthority();

  const std::string& certificate() const { return certificate_; }

  /// For who is called `common_name`, with these alternative names in OpenSSL's
  /// words ("DNS:localhost", "URI:spiffe://test/caller"); none where empty.
  CertificateAndKey Sign(const std::string& common_name,
                         const std::vector<std::string>& alternative_names = {
                             "DNS:localhost", "IP:127.0.0.1"}) const;
  /// The same, whose time was over an hour ago.
  CertificateAndKey SignExpired(
      const std::string& common_name,
      const std::vector<std::string>& alternative_names = {}) const;

 private:
  CertificateAndKey SignUntil(int64_t seconds_from_now,
                              const std::string& common_name,
                              const std::vector<std::string>& names) const;

  struct Impl;
  std::unique_ptr<Impl> impl_;
  std::string certificate_;
};

/// Writes `text` to `path` as programs do that care: to another file first,
/// which is then renamed.
void ReplaceFile(const std::string& path, const std::string& text);

}  // namespace attention::test

#endif  // ATTENTION_TESTS_SUPPORT_CERTIFICATES_H_
