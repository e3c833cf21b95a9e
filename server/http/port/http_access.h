#ifndef ATTENTION_SERVER_HTTP_PORT_HTTP_ACCESS_H_
#define ATTENTION_SERVER_HTTP_PORT_HTTP_ACCESS_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/http/port/http_message.h"

namespace attention::server {

/// Keeps web pages out that nobody has let in. A browser on this machine, or
/// within its network, reaches the port for any page that its user opens:
///
/// - A page's script says where it comes from (Origin; RFC 6454, and the Fetch
///   Standard for CORS): its origin has to be allowed.
/// - A page whose own name is made to lead here (DNS rebinding) asks by that
///   name (Host): in plain text, all but health and metrics wants an address,
///   localhost or a name that is known. Over TLS the browser has compared the
///   name with the certificate.
/// - A form can send a body as text/plain or of a form's types without asking
///   first: bodies are JSON, or octets.
///
/// May be used from several threads at once.
class HttpAccess {
 public:
  /// `origins` as "https://example.org:8443", their scheme's own port or none;
  /// `hosts` as names without a port, with or without a dot at their end, or
  /// "*" for any; both in upper or lower case.
  HttpAccess(std::vector<std::string> origins, std::vector<std::string> hosts);

  /// The request's Origin where it is allowed; else "".
  std::string AllowedOrigin(const HttpRequest& request) const;

  /// The reply to a request that goes no further: 403 or 415, or 204 to a
  /// browser that asks whether a page may send it (preflight). `probe`: it is
  /// for health or metrics. `has_body`: a body follows the head.
  std::optional<HttpReply> Answer(const HttpRequest& request, bool probe,
                                  bool has_body) const;

  /// Has a browser give the reply to a page of `origin`, which is allowed.
  static void AddHeaders(const std::string& origin, HttpReply& reply);

 private:
  bool AllowsHost(const std::string& host) const;

  const std::vector<std::string> origins_;
  const std::vector<std::string> hosts_;
};

/// "https://example.org", with or without a port, and nothing behind it.
bool IsOrigin(const std::string& text);
/// A name without a port, or "*".
bool IsHostNameOrAny(const std::string& text);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_HTTP_PORT_HTTP_ACCESS_H_
