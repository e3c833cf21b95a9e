// What a server reads of an AttendShardsRequest, against protobuf's own parser:
// what protobuf accepts, and the limits allow, is accepted, however the bytes
// are cut into slices; parts and what other servers are sent have the content
// that protobuf finds.
#include <google/protobuf/unknown_field_set.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "attention/v1/attention.pb.h"
#include "server/shards/shard_message.h"
#include "tests/fuzz/expect.h"
#include "tests/fuzz/quiet_protobuf.h"
#include "tests/fuzz/slice_cuts.h"

namespace attention::server {
namespace {

constexpr size_t kMostTargetBytes = 512;

template <typename Message>
bool HasUnknownFields(const Message& message) {
  return !message.GetReflection()->GetUnknownFields(message).empty();
}

bool HasOneShardOfEachTarget(const v1::Shard& shard) {
  std::set<std::string> targets;
  return std::all_of(shard.shards().begin(), shard.shards().end(),
                     [&targets](const v1::Shard& other) {
                       return targets.insert(other.target()).second;
                     });
}

// Whether a server may be asked this, `level` levels below the first one;
// `count` of them have been seen.
bool IsAllowed(const v1::Shard& shard, int level, size_t& count) {
  return level <= kMostShardLevels && count++ <= kMostShards &&
         !HasUnknownFields(shard) &&
         shard.target().size() <= kMostTargetBytes && shard.parts_size() >= 1 &&
         shard.parts_size() <= static_cast<int>(kMostPartsOfServer) &&
         shard.shards_size() <= static_cast<int>(kMostShardsOfServer) &&
         HasOneShardOfEachTarget(shard) &&
         std::all_of(shard.shards().begin(), shard.shards().end(),
                     [level, &count](const v1::Shard& other) {
                       return IsAllowed(other, level + 1, count);
                     });
}

// Whether no field comes too often: protobuf merges those that come again, and
// does not say how many there were.
bool IsRarelyMerged(const uint8_t* data, size_t size) {
  google::protobuf::UnknownFieldSet fields;
  Expect(fields.ParseFromArray(data, static_cast<int>(size)),
         "what is a message is one of unknown fields");
  std::map<int, size_t> times;
  for (int i = 0; i < fields.field_count(); ++i) {
    if (++times[fields.field(i).number()] > kMostTimesOfAField) return false;
  }
  return true;
}

std::string BytesOf(absl::Span<const grpc::Slice> slices) {
  std::string bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes;
}

void ComparePart(const ShardRequest& request, size_t part,
                 const v1::AttendShardsRequest& expected) {
  v1::AttendRequest found;
  Expect(found.ParseFromString(BytesOf(PartMessage(request, part).slices())),
         "a part is an AttendRequest");
  v1::AttendRequest merged = expected.common();
  merged.MergeFrom(expected.shard().parts(static_cast<int>(part)));
  Expect(found.SerializeAsString() == merged.SerializeAsString(),
         "a part is merged into what is common");
}

void CompareOther(const ShardRequest& request, size_t other,
                  const v1::AttendShardsRequest& expected) {
  const v1::Shard& shard = expected.shard().shards(static_cast<int>(other));
  Expect(request.others[other].target == shard.target(),
         "the target is the shard's");
  std::vector<grpc::Slice> slices;
  Expect(MessageToOther(request, other).Dump(&slices).ok(), "it has bytes");
  v1::AttendShardsRequest found;
  Expect(found.ParseFromString(BytesOf(slices)),
         "another server is sent an AttendShardsRequest");
  v1::AttendShardsRequest wanted;
  *wanted.mutable_common() = expected.common();
  *wanted.mutable_shard() = shard;
  Expect(found.SerializeAsString() == wanted.SerializeAsString(),
         "another server is sent what is common, and its shard");
}

struct Requests {
  absl::StatusOr<ShardRequest> whole, cut;
};

Requests Read(const uint8_t* data, size_t size) {
  const ReceivedMessage in_one(
      std::vector<grpc::Slice>{grpc::Slice(data, size)});
  const ReceivedMessage in_pieces(test::CutIntoSlices(data, size));
  Requests requests = {ReadShardRequest(in_one), ReadShardRequest(in_pieces)};
  Expect(requests.whole.status() == requests.cut.status(),
         "cuts do not change the outcome");
  return requests;
}

// In protobuf's own bytes: a default that is written out, as no client of
// ours does, replaces what is common where bytes are put one behind the other,
// and not in MergeFrom.
void CompareContent(const v1::AttendShardsRequest& expected) {
  const std::string bytes = expected.SerializeAsString();
  const Requests requests =
      Read(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  for (const auto* request : {&requests.whole, &requests.cut}) {
    Expect(request->ok(), "protobuf's own bytes are accepted");
    for (size_t i = 0; i < (*request)->parts.size(); ++i) {
      ComparePart(**request, i, expected);
    }
    for (size_t i = 0; i < (*request)->others.size(); ++i) {
      CompareOther(**request, i, expected);
    }
  }
}

void Compare(const uint8_t* data, size_t size) {
  v1::AttendShardsRequest expected;
  const bool parses = expected.ParseFromArray(data, static_cast<int>(size));
  const Requests requests = Read(data, size);
  if (!parses) return;  // as parts are not parsed here, it may be accepted
  size_t count = 0;
  const bool allowed = !HasUnknownFields(expected) &&
                       IsAllowed(expected.shard(), 0, count) &&
                       IsRarelyMerged(data, size);
  Expect(requests.whole.ok() == allowed, "what protobuf accepts is accepted");
  if (allowed) CompareContent(expected);
}

}  // namespace
}  // namespace attention::server

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  attention::QuietenProtobuf();
  attention::server::Compare(data, size);
  return 0;
}
