#ifndef ATTENTION_SERVER_SERVICES_ATTENTION_SERVICE_H_
#define ATTENTION_SERVER_SERVICES_ATTENTION_SERVICE_H_

#include <memory>

#include "attention/v1/attention.grpc.pb.h"
#include "core/engine.h"
#include "server/models/model_repository.h"
#include "server/options/options.h"
#include "server/resident/resident_store.h"
#include "server/scheduling/active_calls.h"
#include "server/scheduling/task.h"

namespace attention::server {

/// attention.v1.AttentionService. All methods are raw: they see messages as the
/// bytes that came, and reply with bytes.
class AttentionService final
    : public v1::AttentionService::WithRawCallbackMethod_Attend<
          v1::AttentionService::WithRawCallbackMethod_AttendStream<
              v1::AttentionService::WithRawCallbackMethod_GetServerInfo<
                  v1::AttentionService::Service>>> {
 public:
  /// The arguments outlive the service.
  AttentionService(const ServerOptions& options, const Engine& engine,
                   const TaskServices& services, ActiveCalls& calls,
                   const ModelRepository& models, ResidentStore& resident);

  grpc::ServerUnaryReactor* Attend(grpc::CallbackServerContext* context,
                                   const grpc::ByteBuffer* request,
                                   grpc::ByteBuffer* response) override;

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* AttendStream(
      grpc::CallbackServerContext* context) override;

  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context,
                                          const grpc::ByteBuffer* request,
                                          grpc::ByteBuffer* response) override;

 private:
  std::unique_ptr<Operation> NewOperation(const Caller* caller,
                                          bool on_stream) const;

  const ServerOptions& options_;
  const Engine& engine_;
  const TaskServices services_;
  ActiveCalls& calls_;
  const ModelRepository& models_;
  ResidentStore& resident_;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_SERVICES_ATTENTION_SERVICE_H_
