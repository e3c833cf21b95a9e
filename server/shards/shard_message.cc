#include "server/shards/shard_message.h"

#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "attention/v1/attention.pb.h"
#include "server/shards/slice_reader.h"
#include "server/wire/message_pieces.h"

namespace attention::server {
namespace {

using Slices = std::vector<grpc::Slice>;

// Longer ones are no host and port.
constexpr uint64_t kMostTargetBytes = 512;

// Each part has all slices of what is common. More of them than these, where
// they are smaller, become one.
constexpr size_t kUsualSlices = 64;
constexpr size_t kUsualSliceBytes = 2048;

absl::Status NotAMessage() {
  return absl::InvalidArgumentError(
      "the bytes are not an AttendShardsRequest: a field is cut or malformed");
}

absl::Status Unknown(const char* message, uint32_t number) {
  return absl::InvalidArgumentError(absl::StrCat(
      "field ", number, " of ", message, " is unknown to this server"));
}

absl::Status TooMany(const char* what, size_t most) {
  return absl::ResourceExhaustedError(absl::StrCat(
      "shard.", what, ": more than ", most, " of one server (expected fewer)"));
}

std::string TextOf(const Slices& slices) {
  std::string text;
  for (const grpc::Slice& slice : slices) {
    text.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return text;
}

void JoinSmall(Slices& slices) {
  if (slices.size() <= kUsualSlices) return;
  size_t bytes = 0;
  for (const grpc::Slice& slice : slices) bytes += slice.size();
  if (bytes / slices.size() < kUsualSliceBytes) {
    slices = {grpc::Slice(TextOf(slices))};
  }
}

// Takes a field that may come again: its bytes are then merged by standing one
// behind the other.
absl::Status TakeMerged(SliceReader& in, uint64_t bytes, const char* name,
                        size_t& times, Slices& out) {
  if (++times > kMostTimesOfAField) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": came more than ",
                                                   kMostTimesOfAField,
                                                   " times (expected once)"));
  }
  in.Take(bytes, out);
  return absl::OkStatus();
}

// What a shard consists of. Its bytes are shared, and the message that they are
// of outlives it.
struct ShardPieces {
  std::string target;
  std::vector<Slices> parts;
  std::vector<Slices> others;
};

absl::StatusOr<ShardPieces> ReadShard(const Slices& shard) {
  ShardPieces pieces;
  SliceReader in(shard);
  while (!in.done()) {
    uint32_t number = 0;
    uint64_t bytes = 0;
    if (!in.NextField(number, bytes)) return NotAMessage();
    Slices value;
    in.Take(bytes, value);
    switch (number) {
      case v1::Shard::kTargetFieldNumber:
        if (bytes > kMostTargetBytes) {
          return absl::InvalidArgumentError(
              absl::StrCat("shard.target: takes ", bytes, " bytes (at most ",
                           kMostTargetBytes, ")"));
        }
        pieces.target = TextOf(value);
        break;
      case v1::Shard::kPartsFieldNumber:
        pieces.parts.push_back(std::move(value));
        break;
      case v1::Shard::kShardsFieldNumber:
        pieces.others.push_back(std::move(value));
        break;
      default:
        return Unknown("Shard", number);
    }
    if (pieces.parts.size() > kMostPartsOfServer) {
      return TooMany("parts", kMostPartsOfServer);
    }
    if (pieces.others.size() > kMostShardsOfServer) {
      return TooMany("shards", kMostShardsOfServer);
    }
  }
  if (pieces.parts.empty()) {
    return absl::InvalidArgumentError(
        "shard.parts: none (expected one or more of each server)");
  }
  return pieces;
}

// What other servers would find wrong, before they are asked. Their targets,
// where `targets` is not null.
absl::Status CheckShards(const std::vector<Slices>& shards, int level,
                         size_t& count, std::vector<std::string>* targets) {
  if (shards.empty()) return absl::OkStatus();
  count += shards.size();
  if (count > kMostShards) {
    return absl::ResourceExhaustedError(
        absl::StrCat("shard.shards: more than ", kMostShards,
                     " of all levels together (expected fewer)"));
  }
  if (level > kMostShardLevels) {
    return absl::InvalidArgumentError(
        absl::StrCat("shard.shards: more than ", kMostShardLevels,
                     " levels (expected a tree that is less deep)"));
  }
  std::set<std::string> seen;
  for (const Slices& shard : shards) {
    absl::StatusOr<ShardPieces> pieces = ReadShard(shard);
    if (!pieces.ok()) return pieces.status();
    if (!seen.insert(pieces->target).second) {
      return absl::InvalidArgumentError(absl::StrCat(
          "shard.shards: target '", absl::CHexEscape(pieces->target),
          "' twice (expected one shard with all parts of a server)"));
    }
    absl::Status below =
        CheckShards(pieces->others, level + 1, count, /*targets=*/nullptr);
    if (!below.ok()) return below;
    if (targets != nullptr) targets->push_back(std::move(pieces->target));
  }
  return absl::OkStatus();
}

void Share(const ReceivedMessage& message, Slices& out) {
  for (const grpc::Slice& slice : message.slices()) out.push_back(slice);
}

}  // namespace

absl::StatusOr<ShardRequest> ReadShardRequest(const ReceivedMessage& message) {
  Slices common;
  Slices shard;
  size_t commons = 0;
  size_t shards = 0;
  SliceReader in(message.slices());
  while (!in.done()) {
    uint32_t number = 0;
    uint64_t bytes = 0;
    if (!in.NextField(number, bytes)) return NotAMessage();
    absl::Status status;
    switch (number) {
      case v1::AttendShardsRequest::kCommonFieldNumber:
        status = TakeMerged(in, bytes, "common", commons, common);
        break;
      case v1::AttendShardsRequest::kShardFieldNumber:
        status = TakeMerged(in, bytes, "shard", shards, shard);
        break;
      default:
        return Unknown("AttendShardsRequest", number);
    }
    if (!status.ok()) return status;
  }
  JoinSmall(common);
  absl::StatusOr<ShardPieces> own = ReadShard(shard);
  if (!own.ok()) return own.status();
  std::vector<std::string> targets;
  size_t count = 0;
  absl::Status tree = CheckShards(own->others, 1, count, &targets);
  if (!tree.ok()) return tree;
  ShardRequest request;
  request.common = std::move(common);
  for (Slices& part : own->parts) request.parts.emplace_back(std::move(part));
  for (size_t i = 0; i < targets.size(); ++i) {
    request.others.push_back(
        {std::move(targets[i]), ReceivedMessage(std::move(own->others[i]))});
  }
  return request;
}

ReceivedMessage PartMessage(const ShardRequest& request, size_t part) {
  Slices slices;
  Share(request.common, slices);
  Share(request.parts[part], slices);
  return slices;
}

grpc::ByteBuffer MessageToOther(const ShardRequest& request, size_t other) {
  const ReceivedMessage& shard = request.others[other].shard;
  Slices slices;
  slices.emplace_back(FieldHeader(v1::AttendShardsRequest::kCommonFieldNumber,
                                  request.common.bytes()));
  Share(request.common, slices);
  slices.emplace_back(
      FieldHeader(v1::AttendShardsRequest::kShardFieldNumber, shard.bytes()));
  Share(shard, slices);
  return {slices.data(), slices.size()};
}

}  // namespace attention::server
