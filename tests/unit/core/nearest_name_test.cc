#include "core/nearest_name.h"

#include <gtest/gtest.h>

namespace attention {
namespace {

TEST(EditDistance, CountsWhatIsInsertedDeletedAndReplaced) {
  EXPECT_EQ(EditDistance("port", "port"), 0U);
  EXPECT_EQ(EditDistance("port", "ports"), 1U);
  EXPECT_EQ(EditDistance("port", "pot"), 1U);
  EXPECT_EQ(EditDistance("port", "part"), 1U);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3U);
  EXPECT_EQ(EditDistance("", "abc"), 3U);
  EXPECT_EQ(EditDistance("abc", ""), 3U);
}

TEST(NearestName, IsTheOneWithTheFewestEdits) {
  EXPECT_EQ(NearestName("--grpc-prot", {"--backend", "--grpc-port"}),
            "--grpc-port");
  EXPECT_EQ(NearestName("b", {"a", "c"}), "a");
  EXPECT_EQ(NearestName("b", {}), "");
}

TEST(NearestName, IsOneWithAllWordsBeforeOneWithFewerEdits) {
  EXPECT_EQ(NearestName("--port", {"--peers", "--grpc-port", "--http-port"}),
            "--grpc-port");
  EXPECT_EQ(NearestName("--tls-cert", {"--tls-key", "--tls-certificate"}),
            "--tls-certificate");
  EXPECT_EQ(
      NearestName("ATTENTION_PORT", {"ATTENTION_PEERS", "ATTENTION_GRPC_PORT"}),
      "ATTENTION_GRPC_PORT");
}

}  // namespace
}  // namespace attention
