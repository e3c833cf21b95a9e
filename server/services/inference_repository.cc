// The protocol's extension for model repositories.
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "server/services/answer.h"
#include "server/services/inference_service.h"

namespace attention::server {
namespace {

absl::Status OneRepository() {
  return absl::UnimplementedError(
      "repository_name: this server has one repository (expected nothing)");
}

// The kserve SDK sends the name in the field that Triton has for the
// repository's.
template <typename Request>
absl::StatusOr<std::string> NameIn(const Request& request) {
  if (request.model_name().empty()) return request.repository_name();
  if (!request.repository_name().empty()) return OneRepository();
  return request.model_name();
}

absl::Status CheckControl(const ServerOptions& options) {
  if (options.allow_model_control) return absl::OkStatus();
  return absl::UnavailableError(
      "loading and unloading models is switched off (the server's "
      "--allow-model-control)");
}

}  // namespace

InferenceService::Reactor* InferenceService::RepositoryIndex(
    Context* context, const inference::RepositoryIndexRequest* request,
    inference::RepositoryIndexResponse* response) {
  if (!request->repository_name().empty()) {
    return Answer(context, OneRepository());
  }
  std::set<std::string> ready;
  for (const auto& model : models_.List()) {
    ready.insert(model->name);
    auto& entry = *response->add_models();
    entry.set_name(model->name);
    entry.set_version(kModelVersion);
    entry.set_state("READY");
  }
  if (request->ready()) return Answer(context, absl::OkStatus());
  for (const ModelIndexEntry& model : repository_.Index()) {
    if (ready.count(model.name) > 0) continue;
    auto& entry = *response->add_models();
    entry.set_name(model.name);
    entry.set_version(kModelVersion);
    entry.set_state("UNAVAILABLE");
    entry.set_reason(model.reason);
  }
  return Answer(context, absl::OkStatus());
}

InferenceService::Reactor* InferenceService::RepositoryModelLoad(
    Context* context, const inference::RepositoryModelLoadRequest* request,
    inference::RepositoryModelLoadResponse*) {
  absl::Status status = CheckControl(options_);
  if (!status.ok()) return Answer(context, status);
  if (!request->parameters().empty()) {
    return Answer(context,
                  absl::UnimplementedError(absl::StrCat(
                      request->parameters().begin()->first.substr(0, 64),
                      ": models are loaded from the server's own folders "
                      "(expected no parameters)")));
  }
  const absl::StatusOr<std::string> name = NameIn(*request);
  return Answer(context, name.ok() ? repository_.Load(*name) : name.status());
}

InferenceService::Reactor* InferenceService::RepositoryModelUnload(
    Context* context, const inference::RepositoryModelUnloadRequest* request,
    inference::RepositoryModelUnloadResponse*) {
  absl::Status status = CheckControl(options_);
  if (!status.ok()) return Answer(context, status);
  const absl::StatusOr<std::string> name = NameIn(*request);
  return Answer(context, name.ok() ? repository_.Unload(*name) : name.status());
}

}  // namespace attention::server
