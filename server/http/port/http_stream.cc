#include "server/http/port/http_stream.h"

#include <utility>
#include <variant>

namespace attention::server {
namespace {

// Asio's hook: what is begun where the last step ended goes on there, and no
// other thread is woken for it.
struct NextStep {
  HttpStream::Handler handler;

  void operator()(HttpStream::Error error, size_t bytes) {
    handler(error, bytes);
  }
  friend bool asio_handler_is_continuation(NextStep* /*step*/) { return true; }
};

}  // namespace

HttpStream::Socket& HttpStream::socket() {
  TlsStream* const tls = std::get_if<TlsStream>(&stream_);
  return tls != nullptr ? tls->next_layer() : std::get<Socket>(stream_);
}

void HttpStream::Read(boost::asio::mutable_buffer into, Handler handler) {
  std::visit(
      [&](auto& stream) {
        stream.async_read_some(into, NextStep{std::move(handler)});
      },
      stream_);
}

void HttpStream::Write(const FirstBuffers& buffers, Handler handler) {
  std::visit(
      [&](auto& stream) {
        stream.async_write_some(buffers, NextStep{std::move(handler)});
      },
      stream_);
}

void HttpStream::EndTls(absl::AnyInvocable<void(Error)> handler) {
  std::get<TlsStream>(stream_).async_shutdown(std::move(handler));
}

}  // namespace attention::server
