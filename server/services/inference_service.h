#ifndef ATTENTION_SERVER_SERVICES_INFERENCE_SERVICE_H_
#define ATTENTION_SERVER_SERVICES_INFERENCE_SERVICE_H_

#include <functional>
#include <memory>
#include <string>

#include "core/engine.h"
#include "inference/grpc_service.grpc.pb.h"
#include "server/memory/shared_memory_registry.h"
#include "server/models/model_repository.h"
#include "server/models/model_table.h"
#include "server/models/repository_queue.h"
#include "server/options.h"
#include "server/scheduling/active_calls.h"
#include "server/scheduling/task.h"

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
/// came, and reply with bytes.
class InferenceService final : public inference_methods::AllMethods {
 public:
  /// The arguments outlive the service.
  InferenceService(const ServerOptions& options, const Engine& engine,
                   const TaskServices& services, ActiveCalls& calls,
                   ModelRepository& repository,
                   RepositoryQueue& repository_queue, ModelTable& models,
                   SharedMemoryRegistry& regions);

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
  Reactor* ServerMetadata(Context* context,
                          const inference::ServerMetadataRequest*,
                          inference::ServerMetadataResponse* response) override;

  Reactor* ModelReady(Context* context,
                      const inference::ModelReadyRequest* request,
                      inference::ModelReadyResponse* response) override;
  Reactor* ModelMetadata(Context* context,
                         const inference::ModelMetadataRequest* request,
                         inference::ModelMetadataResponse* response) override;
  Reactor* ModelConfig(Context* context,
                       const inference::ModelConfigRequest* request,
                       inference::ModelConfigResponse* response) override;
  Reactor* ModelStatistics(
      Context* context, const inference::ModelStatisticsRequest* request,
      inference::ModelStatisticsResponse* response) override;

  Reactor* RepositoryIndex(
      Context* context, const inference::RepositoryIndexRequest* request,
      inference::RepositoryIndexResponse* response) override;
  Reactor* RepositoryModelLoad(
      Context* context, const inference::RepositoryModelLoadRequest* request,
      inference::RepositoryModelLoadResponse*) override;
  Reactor* RepositoryModelUnload(
      Context* context, const inference::RepositoryModelUnloadRequest* request,
      inference::RepositoryModelUnloadResponse*) override;

  Reactor* SystemSharedMemoryStatus(
      Context* context,
      const inference::SystemSharedMemoryStatusRequest* request,
      inference::SystemSharedMemoryStatusResponse* response) override;
  Reactor* SystemSharedMemoryRegister(
      Context* context,
      const inference::SystemSharedMemoryRegisterRequest* request,
      inference::SystemSharedMemoryRegisterResponse*) override;
  Reactor* SystemSharedMemoryUnregister(
      Context* context,
      const inference::SystemSharedMemoryUnregisterRequest* request,
      inference::SystemSharedMemoryUnregisterResponse*) override;
  Reactor* CudaSharedMemoryStatus(
      Context* context, const inference::CudaSharedMemoryStatusRequest* request,
      inference::CudaSharedMemoryStatusResponse* response) override;
  Reactor* CudaSharedMemoryRegister(
      Context* context,
      const inference::CudaSharedMemoryRegisterRequest* request,
      inference::CudaSharedMemoryRegisterResponse*) override;
  Reactor* CudaSharedMemoryUnregister(
      Context* context,
      const inference::CudaSharedMemoryUnregisterRequest* request,
      inference::CudaSharedMemoryUnregisterResponse*) override;

  Reactor* TraceSetting(Context* context,
                        const inference::TraceSettingRequest* request,
                        inference::TraceSettingResponse* response) override;
  Reactor* LogSettings(Context* context,
                       const inference::LogSettingsRequest* request,
                       inference::LogSettingsResponse* response) override;

 private:
  std::unique_ptr<Operation> NewOperation(const Caller* caller,
                                          bool on_stream) const;
  // Whether the feature is on, and the caller may use it.
  absl::Status CheckSharedMemory(const Context& context) const;
  absl::Status CheckControl(const Context& context) const;
  // Answers with what `work` comes to once the repository has come to it.
  Reactor* AnswerFromRepository(Context* context,
                                std::function<absl::Status()> work);
  void FillIndex(const inference::RepositoryIndexRequest& request,
                 inference::RepositoryIndexResponse& response);
  absl::Status FillStatistics(const std::string& name,
                              const std::string& version,
                              inference::ModelStatisticsResponse& response);

  const ServerOptions& options_;
  const Engine& engine_;
  const TaskServices services_;
  ActiveCalls& calls_;
  ModelRepository& repository_;
  RepositoryQueue& repository_queue_;
  ModelTable& models_;
  SharedMemoryRegistry& regions_;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_SERVICES_INFERENCE_SERVICE_H_
