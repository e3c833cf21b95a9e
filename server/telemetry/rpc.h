#ifndef ATTENTION_SERVER_TELEMETRY_RPC_H_
#define ATTENTION_SERVER_TELEMETRY_RPC_H_

#include <cstddef>
#include <cstdint>

namespace attention::server {

/// The RPCs that are counted, each for itself.
enum class Rpc : uint8_t {
  kOther,  // of a service that has no name here
  kAttend,
  kAttendStream,
  kModelInfer,
  kModelStreamInfer,
  kAppend,
  kAttendShards,
};
inline constexpr size_t kRpcs = 7;

/// As metrics call it, in the words of gRPC's other servers.
struct RpcName {
  const char* type;  // "unary" or "bidi_stream"
  const char* service;
  const char* method;
};

constexpr RpcName NameOf(Rpc rpc) {
  switch (rpc) {
    case Rpc::kOther:
      return {"unary", "", ""};
    case Rpc::kAttend:
      return {"unary", "attention.v1.AttentionService", "Attend"};
    case Rpc::kAttendStream:
      return {"bidi_stream", "attention.v1.AttentionService", "AttendStream"};
    case Rpc::kModelInfer:
      return {"unary", "inference.GRPCInferenceService", "ModelInfer"};
    case Rpc::kModelStreamInfer:
      return {"bidi_stream", "inference.GRPCInferenceService",
              "ModelStreamInfer"};
    case Rpc::kAppend:
      return {"unary", "attention.v1.KeyValueService", "Append"};
    case Rpc::kAttendShards:
      return {"unary", "attention.v1.ShardService", "Attend"};
  }
  return {"", "", ""};
}

/// Whether one call carries many requests.
constexpr bool IsStream(Rpc rpc) {
  return rpc == Rpc::kAttendStream || rpc == Rpc::kModelStreamInfer;
}

}  // namespace attention::server

#endif  // ATTENTION_SERVER_TELEMETRY_RPC_H_
