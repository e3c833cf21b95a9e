#include "server/shards/shard_message.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "attention/v1/attention.pb.h"

namespace attention::server {
namespace {

// The message in pieces of so many bytes.
ReceivedMessage Cut(const std::string& bytes, size_t piece) {
  std::vector<grpc::Slice> slices;
  for (size_t at = 0; at < bytes.size(); at += piece) {
    slices.emplace_back(bytes.substr(at, piece));
  }
  return slices;
}

std::string BytesOf(const ReceivedMessage& message) {
  std::string bytes;
  for (const grpc::Slice& slice : message.slices()) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes;
}

std::string BytesOf(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(buffer.Dump(&slices).ok());
  return BytesOf(ReceivedMessage(std::move(slices)));
}

v1::AttendShardsRequest TwoServers() {
  v1::AttendShardsRequest request;
  request.mutable_common()->set_id("common");
  request.mutable_common()->mutable_query()->set_data(std::string(5000, 'q'));
  v1::Shard& shard = *request.mutable_shard();
  shard.add_parts()->mutable_sequences()->add_entries()->set_name("a");
  shard.add_parts()->mutable_sequences()->add_entries()->set_name("b");
  v1::Shard& other = *shard.add_shards();
  other.set_target("10.1.0.7:8001");
  other.add_parts()->mutable_sequences()->add_entries()->set_name("c");
  return request;
}

TEST(ShardMessageTest, IsTakenApartWhereverItIsCut) {
  const v1::AttendShardsRequest request = TwoServers();
  for (const size_t piece : {1, 2, 7, 23, 24, 100, 5000, 1 << 20}) {
    const ReceivedMessage message = Cut(request.SerializeAsString(), piece);
    const auto read = ReadShardRequest(message);
    ASSERT_TRUE(read.ok()) << read.status();
    ASSERT_EQ(read->parts.size(), 2);
    v1::AttendRequest part;
    ASSERT_TRUE(part.ParseFromString(BytesOf(PartMessage(*read, 1))));
    EXPECT_EQ(part.id(), "common");
    EXPECT_EQ(part.query().data().size(), 5000);
    EXPECT_EQ(part.sequences().entries(0).name(), "b");
    ASSERT_EQ(read->others.size(), 1);
    EXPECT_EQ(read->others[0].target, "10.1.0.7:8001");
    v1::AttendShardsRequest sent;
    ASSERT_TRUE(sent.ParseFromString(BytesOf(MessageToOther(*read, 0))));
    EXPECT_EQ(sent.common().SerializeAsString(),
              request.common().SerializeAsString());
    EXPECT_EQ(sent.shard().SerializeAsString(),
              request.shard().shards(0).SerializeAsString());
  }
}

TEST(ShardMessageTest, EveryBeginningIsAnErrorOrAMessage) {
  const std::string bytes = TwoServers().SerializeAsString();
  for (size_t size = 0; size < bytes.size(); ++size) {
    const ReceivedMessage message = Cut(bytes.substr(0, size), 64);
    EXPECT_FALSE(ReadShardRequest(message).ok()) << size;
  }
}

// With a part, and a target of its own.
v1::Shard& AddShard(v1::Shard& to, size_t number) {
  v1::Shard& shard = *to.add_shards();
  shard.set_target(std::to_string(number));
  shard.add_parts();
  return shard;
}

TEST(ShardMessageTest, BoundsAreThoseOfTheApi) {
  v1::AttendShardsRequest request;
  v1::Shard* shard = request.mutable_shard();
  for (int level = 0; level < kMostShardLevels; ++level) {
    shard->add_parts();
    shard = shard->add_shards();
  }
  shard->add_parts();
  const auto read = [&request] {
    return ReadShardRequest(Cut(request.SerializeAsString(), 1000)).status();
  };
  EXPECT_EQ(read(), absl::OkStatus());
  shard->add_shards()->add_parts();
  EXPECT_EQ(read().code(), absl::StatusCode::kInvalidArgument);
  request.mutable_shard()->clear_shards();
  for (size_t i = 0; i < kMostShardsOfServer; ++i) {
    AddShard(*request.mutable_shard(), i);
  }
  EXPECT_EQ(read(), absl::OkStatus());
  request.mutable_shard()->add_shards()->add_parts();
  EXPECT_EQ(read().code(), absl::StatusCode::kResourceExhausted);
}

TEST(ShardMessageTest, ServersOfAllLevelsAreBounded) {
  v1::AttendShardsRequest request;
  v1::Shard& root = *request.mutable_shard();
  root.add_parts();
  constexpr size_t kBelowEach = kMostShards / 32 - 1;
  for (size_t i = 0; i < 32; ++i) {
    v1::Shard& shard = AddShard(root, i);
    for (size_t n = 0; n < kBelowEach; ++n) AddShard(shard, n);
  }
  const auto read = [&request] {
    return ReadShardRequest(Cut(request.SerializeAsString(), 1000)).status();
  };
  EXPECT_EQ(read(), absl::OkStatus());
  root.mutable_shards(7)->add_shards()->add_parts();
  EXPECT_EQ(read().code(), absl::StatusCode::kResourceExhausted);
}

// What is asked of it takes memory, and it has one place in the tree.
TEST(ShardMessageTest, AServerAsksAnotherOneOnce) {
  for (const int level : {0, 1}) {
    v1::AttendShardsRequest request = TwoServers();
    v1::Shard* shard = request.mutable_shard();
    if (level > 0) shard = shard->mutable_shards(0);
    AddShard(*shard, 1);
    AddShard(*shard, 2);
    const auto read = [&request] {
      return ReadShardRequest(Cut(request.SerializeAsString(), 1000)).status();
    };
    EXPECT_EQ(read(), absl::OkStatus());
    AddShard(*shard, 1);
    EXPECT_EQ(read().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(read().message(),
              "shard.shards: target '1' twice (expected one shard with all "
              "parts of a server)");
  }
}

// Serialized, with `common` as so many fields that are to be merged.
std::string InPieces(const v1::AttendShardsRequest& request, size_t pieces) {
  v1::AttendShardsRequest piece;
  std::string bytes;
  for (size_t n = 0; n + 1 < pieces; ++n) {
    piece.mutable_common()->set_id(std::string(n, 'i'));
    bytes += piece.SerializeAsString();
  }
  return bytes + request.SerializeAsString();
}

TEST(ShardMessageTest, AFieldComes64TimesAtMost) {
  const v1::AttendShardsRequest request = TwoServers();
  const auto read = ReadShardRequest(Cut(InPieces(request, 64), 1000));
  ASSERT_TRUE(read.ok()) << read.status();
  v1::AttendRequest part;
  ASSERT_TRUE(part.ParseFromString(BytesOf(PartMessage(*read, 1))));
  EXPECT_EQ(part.id(), "common");
  const absl::Status more =
      ReadShardRequest(Cut(InPieces(request, 65), 1000)).status();
  EXPECT_EQ(more.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(more.message(), "common: came more than 64 times (expected once)");
  std::string shards;
  for (int n = 0; n < 65; ++n) shards += std::string("\x12\x02\x12\x00", 4);
  EXPECT_EQ(ReadShardRequest(Cut(shards, 1000)).status().message(),
            "shard: came more than 64 times (expected once)");
}

TEST(ShardMessageTest, PartsShareFewSlicesOfAMessageThatCameInTinyOnes) {
  const v1::AttendShardsRequest request = TwoServers();
  const auto read = ReadShardRequest(Cut(request.SerializeAsString(), 24));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->common.slices().size(), 1);
  EXPECT_LT(PartMessage(*read, 0).slices().size(), 10);
}

}  // namespace
}  // namespace attention::server
