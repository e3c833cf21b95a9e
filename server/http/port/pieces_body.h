#ifndef ATTENTION_SERVER_HTTP_PORT_PIECES_BODY_H_
#define ATTENTION_SERVER_HTTP_PORT_PIECES_BODY_H_

#include <grpcpp/support/slice.h>

#include <boost/asio/buffer.hpp>
#include <boost/beast/core/error.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/optional/optional.hpp>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace attention::server {

/// A body for Boost.Beast that is sent from where it lies: a text, or slices.
struct PiecesBody {
  struct value_type {  // NOLINT(readability-identifier-naming): Beast's
    std::string text;
    std::vector<grpc::Slice> pieces;
  };

  static uint64_t size(const value_type& body) {
    uint64_t size = body.text.size();
    for (const grpc::Slice& piece : body.pieces) size += piece.size();
    return size;
  }

  class writer {  // NOLINT(readability-identifier-naming): Beast's
   public:
    using const_buffers_type = std::vector<boost::asio::const_buffer>;

    template <bool IsRequest, typename Fields>
    writer(const boost::beast::http::header<IsRequest, Fields>& /*header*/,
           const value_type& body)
        : body_(body) {}

    void init(boost::beast::error_code& error) { error = {}; }

    boost::optional<std::pair<const_buffers_type, bool>> get(
        boost::beast::error_code& error) {
      error = {};
      const_buffers_type buffers;
      buffers.reserve(1 + body_.pieces.size());
      buffers.emplace_back(body_.text.data(), body_.text.size());
      for (const grpc::Slice& piece : body_.pieces) {
        buffers.emplace_back(piece.begin(), piece.size());
      }
      return std::make_pair(std::move(buffers), /*more=*/false);
    }

   private:
    const value_type& body_;
  };
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_HTTP_PORT_PIECES_BODY_H_
