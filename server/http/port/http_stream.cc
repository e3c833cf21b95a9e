#include "server/http/port/http_stream.h"

#include <utility>
#include <variant>

namespace attention::server {

HttpStream::Socket& HttpStream::socket() {
  TlsStream* const tls = std::get_if<TlsStream>(&stream_);
  return tls != nullptr ? tls->next_layer() : std::get<Socket>(stream_);
}

void HttpStream::Read(boost::asio::mutable_buffer into, Handler handler) {
  std::visit(
      [&](auto& stream) { stream.async_read_some(into, std::move(handler)); },
      stream_);
}

void HttpStream::Write(const FirstBuffers& buffers, Handler handler) {
  std::visit(
      [&](auto& stream) {
        stream.async_write_some(buffers, std::move(handler));
      },
      stream_);
}

void HttpStream::EndTls(absl::AnyInvocable<void(Error)> handler) {
  std::get<TlsStream>(stream_).async_shutdown(std::move(handler));
}

}  // namespace attention::server
