#ifndef ATTENTION_SERVER_HTTP_PORT_HTTP_HEAD_CHECKS_H_
#define ATTENTION_SERVER_HTTP_PORT_HTTP_HEAD_CHECKS_H_

#include <boost/beast/http/fields.hpp>
#include <boost/beast/http/message.hpp>

#include "absl/status/status.h"

namespace attention::server {

/// What Beast leaves to its callers of a request's head, so that it is sure
/// where the request ends and whom it is for (RFC 9112, sections 3.2 and 6.1):
/// one Host, which HTTP/1.1 wants; no Transfer-Encoding but a single "chunked",
/// and none over HTTP/1.0. The connection of a request that is refused has to
/// be closed: nobody knows what its next bytes are.
///
/// INVALID_ARGUMENT names the field.
absl::Status CheckHead(
    const boost::beast::http::request_header<boost::beast::http::fields>& head);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_HTTP_PORT_HTTP_HEAD_CHECKS_H_
