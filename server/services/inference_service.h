#ifndef ATTENTION_SERVER_SERVICES_INFERENCE_SERVICE_H_
#define ATTENTION_SERVER_SERVICES_INFERENCE_SERVICE_H_

#include <functional>
#include <memory>
#include <utility>

#include "core/engine.h"
#include "inference/grpc_service.grpc.pb.h"
#include "server/memory/shared_memory_registry.h"
#include "server/models/model_table.h"
#include "server/options/options.h"
#include "server/resident/resident_store.h"
#include "server/scheduling/active_calls.h"
#include "server/scheduling/task.h"
#include "server/services/answer.h"
#include "server/services/caller_of_call.h"
#include "server/services/inference_management.h"
#include "server/wire/status_table.h"

namespace attention::server {

// The generated callback service would make every method one of messages.
namespace inference_methods {
using Oip = inference::GRPCInferenceService;
using ServerMethods = Oip::WithCallbackMethod_ServerLive<
    Oip::WithCallbackMethod_ServerReady<Oip::WithCallbackMethod_ServerMetadata<
        Oip::WithCallbackMethod_TraceSetting<
            Oip::WithCallbackMethod_LogSettings<Oip::Service>>>>>;
using ModelMethods = Oip::WithCallbackMethod_ModelReady<
    Oip::WithCallbackMethod_ModelMetadata<Oip::WithCallbackMethod_ModelConfig<
        Oip::WithCallbackMethod_ModelStatistics<ServerMethods>>>>;
using RepositoryMethods = Oip::WithCallbackMethod_RepositoryIndex<
    Oip::WithCallbackMethod_RepositoryModelLoad<
        Oip::WithCallbackMethod_RepositoryModelUnload<ModelMethods>>>;
using SystemMemoryMethods = Oip::WithCallbackMethod_SystemSharedMemoryStatus<
    Oip::WithCallbackMethod_SystemSharedMemoryRegister<
        Oip::WithCallbackMethod_SystemSharedMemoryUnregister<
            RepositoryMethods>>>;
using MemoryMethods = Oip::WithCallbackMethod_CudaSharedMemoryStatus<
    Oip::WithCallbackMethod_CudaSharedMemoryRegister<
        Oip::WithCallbackMethod_CudaSharedMemoryUnregister<
            SystemMemoryMethods>>>;
using AllMethods = Oip::WithRawCallbackMethod_ModelInfer<
    Oip::WithRawCallbackMethod_ModelStreamInfer<MemoryMethods>>;
}  // namespace inference_methods

/// inference.GRPCInferenceService: the Open Inference Protocol with Triton's
/// extensions (proto/inference/grpc_service.proto says what each method does).
/// The methods that carry tensors are raw: they see messages as the bytes that
/// came, and reply with bytes. The others say what InferenceManagement does.
class InferenceService final : public inference_methods::AllMethods {
 public:
  /// The arguments outlive the service. `ready` is what ServerReady says.
  InferenceService(const ServerOptions& options, const Engine& engine,
                   const TaskServices& services, ActiveCalls& calls,
                   InferenceManagement& management, ModelTable& models,
                   SharedMemoryRegistry& regions, ResidentStore& resident,
                   std::function<bool()> ready);

  using Context = grpc::CallbackServerContext;
  using Reactor = grpc::ServerUnaryReactor;
  using StreamReactor =
      grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;

  Reactor* ModelInfer(Context* context, const grpc::ByteBuffer* request,
                      grpc::ByteBuffer* response) override;
  StreamReactor* ModelStreamInfer(Context* context) override;

  Reactor* ServerLive(Context* context, const inference::ServerLiveRequest*,
                      inference::ServerLiveResponse* response) override;
  Reactor* ServerReady(Context* context, const inference::ServerReadyRequest*,
                       inference::ServerReadyResponse* response) override;

// What is asked of the management under the same name; HOW is one of the two
// members below.
#define ATTENTION_METHOD(NAME, HOW)                                        \
  Reactor* NAME(Context* context, const inference::NAME##Request* request, \
                inference::NAME##Response* response) override {            \
    return HOW(context, *request, *response, &InferenceManagement::NAME);  \
  }
  ATTENTION_METHOD(ServerMetadata, Ask)
  ATTENTION_METHOD(ModelReady, Ask)
  ATTENTION_METHOD(ModelMetadata, Ask)
  ATTENTION_METHOD(ModelConfig, Ask)
  ATTENTION_METHOD(ModelStatistics, Ask)
  ATTENTION_METHOD(TraceSetting, Ask)
  ATTENTION_METHOD(LogSettings, Ask)
  ATTENTION_METHOD(SystemSharedMemoryStatus, Ask)
  ATTENTION_METHOD(SystemSharedMemoryRegister, Ask)
  ATTENTION_METHOD(SystemSharedMemoryUnregister, Ask)
  ATTENTION_METHOD(CudaSharedMemoryStatus, Ask)
  ATTENTION_METHOD(CudaSharedMemoryRegister, Ask)
  ATTENTION_METHOD(CudaSharedMemoryUnregister, Ask)
  ATTENTION_METHOD(RepositoryIndex, AskInTurn)
  ATTENTION_METHOD(RepositoryModelLoad, AskInTurn)
  ATTENTION_METHOD(RepositoryModelUnload, AskInTurn)
#undef ATTENTION_METHOD

 private:
  std::unique_ptr<Operation> NewOperation(const Caller* caller,
                                          bool on_stream) const;

  // Answers what is known at once.
  template <typename Request, typename Response, typename Method>
  Reactor* Ask(Context* context, const Request& request, Response& response,
               Method method) {
    const auto caller = CallerOfCall(services_.callers, *context);
    if (!caller.ok()) return Answer(context, caller.status());
    auto reply = (management_.*method)(caller->get(), request);
    if (!reply.ok()) return Answer(context, reply.status());
    response = *std::move(reply);
    return Answer(context, absl::OkStatus());
  }

  // Answers when it is the call's turn. gRPC keeps the call, with its request
  // and its response, until Finish().
  template <typename Request, typename Response, typename Method>
  Reactor* AskInTurn(Context* context, const Request& request,
                     Response& response, Method method) {
    const auto caller = CallerOfCall(services_.callers, *context);
    if (!caller.ok()) return Answer(context, caller.status());
    Reactor* const reactor = context->DefaultReactor();
    (management_.*method)(
        caller->get(), request,
        [context] {
          return context->IsCancelled()
                     ? absl::CancelledError("the caller cancelled the call")
                     : absl::OkStatus();
        },
        [reactor, &response](absl::StatusOr<Response> reply) {
          if (!reply.ok()) return reactor->Finish(ToGrpcStatus(reply.status()));
          response = *std::move(reply);
          reactor->Finish(grpc::Status::OK);
        });
    return reactor;
  }

  const ServerOptions& options_;
  const Engine& engine_;
  const TaskServices services_;
  ActiveCalls& calls_;
  InferenceManagement& management_;
  ModelTable& models_;
  SharedMemoryRegistry& regions_;
  ResidentStore& resident_;
  const std::function<bool()> ready_;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_SERVICES_INFERENCE_SERVICE_H_
