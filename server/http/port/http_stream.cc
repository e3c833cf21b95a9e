#include "server/http/port/http_stream.h"

#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>
#include <utility>
#include <variant>

namespace attention::server {
namespace {

// Asio's hook: what is begun where the last step ended goes on there, and no
// other thread is woken for it.
struct NextStep {
  HttpStream::Handler handler;
  HttpStream::Error* end = nullptr;  // of a read: its stream's

  void operator()(HttpStream::Error error, size_t bytes) {
    if (end != nullptr && error != boost::asio::error::operation_aborted) {
      *end = error;
    }
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
  if (end_) {
    return boost::asio::post(
        get_executor(), [end = end_, handler = std::move(handler)]() mutable {
          handler(end, 0);
        });
  }
  std::visit(
      [&](auto& stream) {
        stream.async_read_some(into, NextStep{std::move(handler), &end_});
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
