#ifndef ATTENTION_SERVER_SERVICES_INFERENCE_MANAGEMENT_H_
#define ATTENTION_SERVER_SERVICES_INFERENCE_MANAGEMENT_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/engine.h"
#include "inference/grpc_service.pb.h"
#include "server/callers/caller.h"
#include "server/memory/shared_memory_registry.h"
#include "server/models/model_repository.h"
#include "server/models/model_table.h"
#include "server/options/options.h"
#include "server/scheduling/serial_queue.h"

namespace attention::server {

/// What the Open Inference Protocol and Triton's extensions have beside
/// inference, whichever way it is asked (proto/inference/grpc_service.proto
/// says what each call does). May be used from several threads at once.
///
/// `caller` is who asks, null where everybody may; PERMISSION_DENIED where he
/// has not the right.
class InferenceManagement {
 public:
  /// What a call is answered with, once.
  template <typename Response>
  using Reply = std::function<void(absl::StatusOr<Response>)>;
  /// Of a call that waits for its turn: whose it is, and why it is not to be
  /// done any more, CANCELLED or DEADLINE_EXCEEDED.
  using Waiter = SerialQueue::Waiter;

  /// The arguments outlive it.
  InferenceManagement(const ServerOptions& options, const Engine& engine,
                      ModelRepository& repository,
                      SerialQueue& repository_queue, ModelTable& models,
                      SharedMemoryRegistry& regions)
      : options_(options),
        engine_(engine),
        repository_(repository),
        repository_queue_(repository_queue),
        models_(models),
        regions_(regions) {}

  absl::StatusOr<inference::ServerMetadataResponse> ServerMetadata(
      const Caller* caller, const inference::ServerMetadataRequest& request);

  /// An unknown model is not ready; a version that is none is a mistake.
  absl::StatusOr<inference::ModelReadyResponse> ModelReady(
      const Caller* caller, const inference::ModelReadyRequest& request);
  absl::StatusOr<inference::ModelMetadataResponse> ModelMetadata(
      const Caller* caller, const inference::ModelMetadataRequest& request);
  absl::StatusOr<inference::ModelConfigResponse> ModelConfig(
      const Caller* caller, const inference::ModelConfigRequest& request);
  absl::StatusOr<inference::ModelStatisticsResponse> ModelStatistics(
      const Caller* caller, const inference::ModelStatisticsRequest& request);

  /// Settings describe this server in Triton's words; it is set up by its
  /// options. UNIMPLEMENTED, with its name, for one that is to be set.
  absl::StatusOr<inference::TraceSettingResponse> TraceSetting(
      const Caller* caller, const inference::TraceSettingRequest& request);
  absl::StatusOr<inference::LogSettingsResponse> LogSettings(
      const Caller* caller, const inference::LogSettingsRequest& request);

  absl::StatusOr<inference::SystemSharedMemoryStatusResponse>
  SystemSharedMemoryStatus(
      const Caller* caller,
      const inference::SystemSharedMemoryStatusRequest& request);
  absl::StatusOr<inference::SystemSharedMemoryRegisterResponse>
  SystemSharedMemoryRegister(
      const Caller* caller,
      const inference::SystemSharedMemoryRegisterRequest& request);
  absl::StatusOr<inference::SystemSharedMemoryUnregisterResponse>
  SystemSharedMemoryUnregister(
      const Caller* caller,
      const inference::SystemSharedMemoryUnregisterRequest& request);
  absl::StatusOr<inference::CudaSharedMemoryStatusResponse>
  CudaSharedMemoryStatus(
      const Caller* caller,
      const inference::CudaSharedMemoryStatusRequest& request);
  absl::StatusOr<inference::CudaSharedMemoryRegisterResponse>
  CudaSharedMemoryRegister(
      const Caller* caller,
      const inference::CudaSharedMemoryRegisterRequest& request);
  absl::StatusOr<inference::CudaSharedMemoryUnregisterResponse>
  CudaSharedMemoryUnregister(
      const Caller* caller,
      const inference::CudaSharedMemoryUnregisterRequest& request);

  /// These read files, one call after the other: `reply` is called on the
  /// queue's thread, or on the calling one where nothing has to wait.
  void RepositoryIndex(const Caller* caller,
                       const inference::RepositoryIndexRequest& request,
                       Waiter waiter,
                       Reply<inference::RepositoryIndexResponse> reply);
  void RepositoryModelLoad(const Caller* caller,
                           const inference::RepositoryModelLoadRequest& request,
                           Waiter waiter,
                           Reply<inference::RepositoryModelLoadResponse> reply);
  void RepositoryModelUnload(
      const Caller* caller,
      const inference::RepositoryModelUnloadRequest& request, Waiter waiter,
      Reply<inference::RepositoryModelUnloadResponse> reply);

 private:
  // That the feature is on, and the caller may use it.
  absl::Status CheckControl(const Caller* caller) const;
  absl::Status CheckSharedMemory(const Caller* caller) const;
  // Replies with what `work` comes to, when its turn has come.
  template <typename Response>
  void InTurn(Waiter waiter, Reply<Response> reply,
              std::function<absl::StatusOr<Response>()> work,
              SerialQueue::Places places = SerialQueue::Places::kAll);
  inference::RepositoryIndexResponse Index(bool ready_alone) const;

  const ServerOptions& options_;
  const Engine& engine_;
  ModelRepository& repository_;
  SerialQueue& repository_queue_;
  ModelTable& models_;
  SharedMemoryRegistry& regions_;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_SERVICES_INFERENCE_MANAGEMENT_H_
