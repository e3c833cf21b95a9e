#include "server/http/port/http_acceptor.h"

#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "server/transport/tcp_listener.h"

namespace attention::server {
namespace {

using boost::asio::ip::tcp;

TEST(HttpAcceptorTest, ThoseThatAreOpenGetOnBetweenSomeNewOnes) {
  auto listener = ListenOnTcp("127.0.0.1", 0);
  ASSERT_TRUE(listener.ok()) << listener.status();
  const tcp::endpoint address(boost::asio::ip::address_v4::loopback(),
                              static_cast<uint16_t>(listener->port));
  boost::asio::io_context elsewhere;
  std::vector<tcp::socket> callers;
  for (int i = 0; i < 5; ++i) callers.emplace_back(elsewhere).connect(address);
  boost::asio::io_context context;
  LogLimit failed;
  size_t accepted = 0;
  HttpAcceptor acceptor(
      context, std::move(listener->sockets.front()), /*most_at_once=*/2,
      [&accepted](tcp::socket) {
        ++accepted;
        return true;
      },
      failed);
  acceptor.Accept();
  for (const size_t so_far : {2, 4, 5}) {
    context.run_one();
    EXPECT_EQ(accepted, so_far);
  }
}

TEST(HttpAcceptorTest, ThoseThatHaveLeftTakeNoTurn) {
  auto listener = ListenOnTcp("127.0.0.1", 0);
  ASSERT_TRUE(listener.ok()) << listener.status();
  const tcp::endpoint address(boost::asio::ip::address_v4::loopback(),
                              static_cast<uint16_t>(listener->port));
  boost::asio::io_context elsewhere;
  for (int i = 0; i < 20; ++i) tcp::socket(elsewhere).connect(address);
  tcp::socket caller(elsewhere);
  caller.connect(address);
  boost::asio::io_context context;
  LogLimit failed;
  std::vector<tcp::endpoint> accepted;
  HttpAcceptor acceptor(
      context, std::move(listener->sockets.front()), /*most_at_once=*/2,
      [&accepted](const tcp::socket& socket) {
        accepted.push_back(socket.remote_endpoint());
        return true;
      },
      failed);
  acceptor.Accept();
  context.run_one();
  EXPECT_EQ(accepted, std::vector{caller.local_endpoint()});
}

}  // namespace
}  // namespace attention::server
