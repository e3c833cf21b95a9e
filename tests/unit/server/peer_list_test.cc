#include "server/shards/peer_list.h"

#include <gtest/gtest.h>

namespace attention::server {
namespace {

TEST(PeerListTest, AnEntryIsAHostOrANetworkWithAPort) {
  for (const char* entry :
       {"10.1.0.7:8001", "10.1.0.7:*", "10.1.0.0/16:*", "node-3.example:8001",
        "[fd00::7]:8001", "[fd00::]/8:*", "0.0.0.0/0:*"}) {
    EXPECT_TRUE(IsPeerEntry(entry)) << entry;
  }
  for (const char* entry :
       {"", ":", ":8001", "10.1.0.7", "10.1.0.7:", "10.1.0.7:0",
        "10.1.0.7:65536", "10.1.0.7:+1", "10.1.0.0/33:*", "10.1.0.0/:*",
        "10.1.0.0/-1:*", "[fd00::]/129:*", "fd00::7:8001", "[fd00::7:8001",
        "http://a:1", "unix:/socket:1", "a b:1"}) {
    EXPECT_FALSE(IsPeerEntry(entry)) << entry;
  }
}

TEST(PeerListTest, ATargetIsOneOfThem) {
  EXPECT_TRUE(HasPeer({"a:1", "B.example:8001"}, "b.EXAMPLE:8001"));
  EXPECT_TRUE(HasPeer({"10.1.0.7:*"}, "10.1.0.7:9"));
  EXPECT_TRUE(HasPeer({"[fd00::7]:8001"}, "[fd00::7]:8001"));
  EXPECT_FALSE(HasPeer({}, "10.1.0.7:9"));
  EXPECT_FALSE(HasPeer({"10.1.0.7:8001"}, "10.1.0.7:8002"));
  EXPECT_FALSE(HasPeer({"10.1.0.7:8001"}, "10.1.0.70:8001"));
  for (const char* target : {"", "10.1.0.7", "10.1.0.7:*", "10.1.0.7:0",
                             "dns:///10.1.0.7:9", "unix:/10.1.0.7:9"}) {
    EXPECT_FALSE(HasPeer({"10.1.0.7:*"}, target)) << target;
  }
}

// gRPC reads up to it and loses the port.
TEST(PeerListTest, ANulIsNoPartOfAnAddress) {
  const std::string nul(1, '\0');
  for (const std::string& target :
       {"10.1.0.7" + nul + ":9", "10.1.0.7" + nul + "x:9"}) {
    EXPECT_FALSE(HasPeer({"10.0.0.0/8:*"}, target)) << target;
    EXPECT_FALSE(IsPeerEntry(target)) << target;
  }
}

TEST(PeerListTest, ANetworkHasTheAddressesOfItsPrefix) {
  EXPECT_TRUE(HasPeer({"10.1.128.0/17:*"}, "10.1.129.3:9"));
  EXPECT_FALSE(HasPeer({"10.1.128.0/17:*"}, "10.1.127.3:9"));
  EXPECT_TRUE(HasPeer({"0.0.0.0/0:*"}, "192.0.2.1:9"));
  EXPECT_TRUE(HasPeer({"[fd00::]/8:*"}, "[fd12::1]:9"));
  EXPECT_FALSE(HasPeer({"[fd00::]/8:*"}, "[fe80::1]:9"));
  // Nobody knows where a name leads, and an address of one kind is none of the
  // other.
  EXPECT_FALSE(HasPeer({"0.0.0.0/0:*"}, "example:9"));
  EXPECT_FALSE(HasPeer({"0.0.0.0/0:*"}, "[::1]:9"));
  EXPECT_FALSE(HasPeer({"10.0.0.0/8:*"}, "10.0.0.0/8:9"));
}

TEST(PeerListTest, LoopbackIsThisMachine) {
  for (const char* entry :
       {"127.0.0.1:*", "127.1.0.0/16:1", "localhost:1", "[::1]:1"}) {
    EXPECT_FALSE(ReachesBeyondLoopback(entry)) << entry;
  }
  for (const char* entry : {"126.0.0.0/7:*", "0.0.0.0/0:*", "10.1.0.7:1",
                            "localhost.example:1", "[::]/0:1", "[::2]:1"}) {
    EXPECT_TRUE(ReachesBeyondLoopback(entry)) << entry;
  }
}

}  // namespace
}  // namespace attention::server
