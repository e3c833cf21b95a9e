#ifndef ATTENTION_SERVER_SHARDS_SHARD_SERVICE_H_
#define ATTENTION_SERVER_SHARDS_SHARD_SERVICE_H_

#include "attention/v1/attention.grpc.pb.h"
#include "core/engine.h"
#include "server/models/model_repository.h"
#include "server/options/options.h"
#include "server/resident/resident_store.h"
#include "server/scheduling/active_calls.h"
#include "server/scheduling/task.h"
#include "server/shards/peers.h"

namespace attention::server {

/// attention.v1.ShardService (proto/attention/v1/attention.proto says what it
/// does).
class ShardService final
    : public v1::ShardService::WithRawCallbackMethod_Attend<
          v1::ShardService::Service> {
 public:
  /// What it works with; all outlive the service.
  struct Parts {
    const ServerOptions& options;
    const Engine& engine;
    ActiveCalls& calls;
    const ModelRepository& models;
    ResidentStore& resident;
    Peers& peers;
  };

  ShardService(const Parts& parts, const TaskServices& services)
      : parts_(parts), services_(services) {}

  grpc::ServerUnaryReactor* Attend(grpc::CallbackServerContext* context,
                                   const grpc::ByteBuffer* request,
                                   grpc::ByteBuffer* response) override;

 private:
  const Parts parts_;
  const TaskServices services_;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_SHARDS_SHARD_SERVICE_H_
