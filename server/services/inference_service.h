#ifndef ATTENTION_SERVER_SERVICES_INFERENCE_SERVICE_H_
#define ATTENTION_SERVER_SERVICES_INFERENCE_SERVICE_H_

#include <functional>
#include <memory>
#include <utility>

#include "core/engine.h"
#include "inference/grpc_service.grpc.pb.h"
#include "server/base/out_of_memory.h"
#include "server/memory/shared_memory_registry.h"
#include "server/models/model_table.h"
#include "server/options/options.h"
#include "server/resident/resident_store.h"
#include "server/scheduling/active_calls.h"
#include "server/scheduling/call_origin.h"
#include "server/scheduling/retry_after.h"
#include "server/scheduling/task.h"
#include "server/services/answer.h"
#include "server/services/caller_of_call.h"
#include "server/services/inference_management.h"
#include "server/services/small_message.h"
#include "server/wire/status_table.h"

namespace attention::server {

// The generated callback service would have gRPC parse every message.
namespace inference_methods {
using Oip = inference::GRPCInferenceService;
using ServerMethods = Oip::WithRawCallbackMethod_ServerLive<
    Oip::WithRawCallbackMethod_ServerReady<
        Oip::WithRawCallbackMethod_ServerMetadata<
            Oip::WithRawCallbackMethod_TraceSetting<
                Oip::WithRawCallbackMethod_LogSettings<Oip::Service>>>>>;
using ModelMethods = Oip::WithRawCallbackMethod_ModelReady<
    Oip::WithRawCallbackMethod_ModelMetadata<
        Oip::WithRawCallbackMethod_ModelConfig<
            Oip::WithRawCallbackMethod_ModelStatistics<ServerMethods>>>>;
using RepositoryMethods = Oip::WithRawCallbackMethod_RepositoryIndex<
    Oip::WithRawCallbackMethod_RepositoryModelLoad<
        Oip::WithRawCallbackMethod_RepositoryModelUnload<ModelMethods>>>;
using SystemMemoryMethods = Oip::WithRawCallbackMethod_SystemSharedMemoryStatus<
    Oip::WithRawCallbackMethod_SystemSharedMemoryRegister<
        Oip::WithRawCallbackMethod_SystemSharedMemoryUnregister<
            RepositoryMethods>>>;
using MemoryMethods = Oip::WithRawCallbackMethod_CudaSharedMemoryStatus<
    Oip::WithRawCallbackMethod_CudaSharedMemoryRegister<
        Oip::WithRawCallbackMethod_CudaSharedMemoryUnregister<
            SystemMemoryMethods>>>;
using AllMethods = Oip::WithRawCallbackMethod_ModelInfer<
    Oip::WithRawCallbackMethod_ModelStreamInfer<MemoryMethods>>;
}  // namespace inference_methods

/// inference.GRPCInferenceService: the Open Inference Protocol with Triton's
/// extensions (proto/inference/grpc_service.proto says what each method does).
/// All of them are raw: they see messages as the bytes that came, and reply
/// with bytes. Those that carry no tensors say what InferenceManagement does.
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

  Reactor* ServerLive(Context* context, const grpc::ByteBuffer* request,
                      grpc::ByteBuffer* response) override;
  Reactor* ServerReady(Context* context, const grpc::ByteBuffer* request,
                       grpc::ByteBuffer* response) override;

// What is asked of the management under the same name; HOW is one of the two
// members below.
// NOLINTBEGIN(bugprone-macro-parentheses): which is no expression
#define ATTENTION_METHOD(NAME, HOW)                                  \
  Reactor* NAME(Context* context, const grpc::ByteBuffer* request,   \
                grpc::ByteBuffer* response) override {               \
    return HOW<inference::NAME##Request, inference::NAME##Response>( \
        context, *request, *response, &InferenceManagement::NAME);   \
  }
  // NOLINTEND(bugprone-macro-parentheses)
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
  Reactor* Ask(Context* context, const grpc::ByteBuffer& bytes,
               grpc::ByteBuffer& response, Method method) {
    const auto ask = [&] {
      const auto caller = CallerOfCall(services_.callers, *context);
      if (!caller.ok()) return caller.status();
      const auto request = ReadSmallMessage<Request>(bytes);
      if (!request.ok()) return request.status();
      const absl::StatusOr<Response> reply =
          (management_.*method)(caller->get(), *request);
      if (reply.ok()) WriteMessage(*reply, response);
      return reply.status();
    };
    return Answer(context, WithoutBadAlloc(ask, OutOfMemoryForNow));
  }

  // Answers when it is the call's turn. gRPC keeps the call, with its response,
  // until Finish().
  template <typename Request, typename Response, typename Method>
  Reactor* AskInTurn(Context* context, const grpc::ByteBuffer& bytes,
                     grpc::ByteBuffer& response, Method method) {
    Reactor* const reactor = context->DefaultReactor();
    const auto wait_for_turn = [&] {
      const auto caller = CallerOfCall(services_.callers, *context);
      if (!caller.ok()) return caller.status();
      const auto request = ReadSmallMessage<Request>(bytes);
      if (!request.ok()) return request.status();
      const auto wanted = [context] {
        return context->IsCancelled()
                   ? absl::CancelledError("the caller cancelled the call")
                   : absl::OkStatus();
      };
      (management_.*method)(
          caller->get(), *request,
          {PartyOf(caller->get(), context->peer()), wanted},
          [reactor, &response](const absl::StatusOr<Response>& reply) {
            const auto write = [&] {
              if (reply.ok()) WriteMessage(*reply, response);
              return reply.status();
            };
            reactor->Finish(
                ToGrpcStatus(WithoutBadAlloc(write, OutOfMemoryForNow)));
          });
      return absl::OkStatus();
    };
    const absl::Status refusal =
        WithoutBadAlloc(wait_for_turn, OutOfMemoryForNow);
    if (!refusal.ok()) reactor->Finish(ToGrpcStatus(refusal));
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
