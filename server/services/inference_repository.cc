// The model repository: what there is, and loading and unloading it.
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "server/services/inference_service.h"
#include "server/wire/status_table.h"

namespace attention::server {
namespace {

InferenceService::Reactor* Answer(InferenceService::Context* context,
                                  const absl::Status& status) {
  InferenceService::Reactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

absl::Status OneRepository() {
  return absl::UnimplementedError(
      "repository_name: this server has one repository (expected nothing)");
}

// The model that a load or an unload is about, where it may be done at all.
template <typename Request>
absl::StatusOr<std::string> ControlledModel(const ServerOptions& options,
                                            const Request& request) {
  if (!options.allow_model_control) {
    return absl::UnavailableError(
        "loading and unloading models is switched off (the server's "
        "--allow-model-control)");
  }
  // The kserve SDK's own proto has the model's name in field 1.
  if (request.model_name().empty()) return request.repository_name();
  if (!request.repository_name().empty()) return OneRepository();
  for (const auto& [key, value] : request.parameters()) {
    // No model here is made of others.
    if (key == "unload_dependents") continue;
    return absl::UnimplementedError(absl::StrCat(
        "parameter '", key.substr(0, 64),
        "': models come from the server's repository alone (expected none)"));
  }
  return request.model_name();
}

}  // namespace

InferenceService::Reactor* InferenceService::RepositoryIndex(
    Context* context, const inference::RepositoryIndexRequest* request,
    inference::RepositoryIndexResponse* response) {
  if (!request->repository_name().empty()) {
    return Answer(context, OneRepository());
  }
  for (const ModelIndexEntry& model : models_.Index()) {
    const bool ready = model.state == ModelState::kReady;
    if (request->ready() && !ready) continue;
    auto& entry = *response->add_models();
    entry.set_name(model.name);
    entry.set_version(kModelVersion);
    entry.set_state(ready ? "READY" : "UNAVAILABLE");
    entry.set_reason(model.reason);
  }
  return Answer(context, absl::OkStatus());
}

InferenceService::Reactor* InferenceService::RepositoryModelLoad(
    Context* context, const inference::RepositoryModelLoadRequest* request,
    inference::RepositoryModelLoadResponse*) {
  const auto name = ControlledModel(options_, *request);
  return Answer(context, name.ok() ? repository_.Load(*name) : name.status());
}

InferenceService::Reactor* InferenceService::RepositoryModelUnload(
    Context* context, const inference::RepositoryModelUnloadRequest* request,
    inference::RepositoryModelUnloadResponse*) {
  const auto name = ControlledModel(options_, *request);
  return Answer(context, name.ok() ? repository_.Unload(*name) : name.status());
}

}  // namespace attention::server
