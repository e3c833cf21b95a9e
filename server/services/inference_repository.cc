// The protocol's extension for model repositories.
#include <functional>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/services/answer.h"
#include "server/services/caller_of_call.h"
#include "server/services/inference_service.h"
#include "server/wire/status_table.h"

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

}  // namespace

absl::Status InferenceService::CheckControl(const Context& context) const {
  absl::Status status =
      CheckCall(services_.callers, context, Right::kModelControl);
  if (!status.ok() || options_.allow_model_control) return status;
  return absl::UnavailableError(
      "loading and unloading models is switched off (the server's "
      "--allow-model-control)");
}

InferenceService::Reactor* InferenceService::AnswerFromRepository(
    Context* context, std::function<absl::Status()> work) {
  // gRPC keeps the call, with its request and its response, until Finish().
  Reactor* reactor = context->DefaultReactor();
  repository_queue_.Add(
      [context, reactor, work = std::move(work)](const absl::Status& turn) {
        absl::Status status = turn;
        if (status.ok() && context->IsCancelled()) {
          status = absl::CancelledError("the caller cancelled the call");
        }
        if (status.ok()) status = work();
        reactor->Finish(ToGrpcStatus(status));
      });
  return reactor;
}

void InferenceService::FillIndex(
    const inference::RepositoryIndexRequest& request,
    inference::RepositoryIndexResponse& response) {
  std::set<std::string> ready;
  for (const auto& model : models_.List()) {
    ready.insert(model->name);
    auto& entry = *response.add_models();
    entry.set_name(model->name);
    entry.set_version(kModelVersion);
    entry.set_state("READY");
  }
  if (request.ready()) return;
  for (const ModelIndexEntry& model : repository_.Index()) {
    if (ready.count(model.name) > 0) continue;
    auto& entry = *response.add_models();
    entry.set_name(model.name);
    entry.set_version(kModelVersion);
    entry.set_state("UNAVAILABLE");
    entry.set_reason(model.reason);
  }
}

InferenceService::Reactor* InferenceService::RepositoryIndex(
    Context* context, const inference::RepositoryIndexRequest* request,
    inference::RepositoryIndexResponse* response) {
  if (absl::Status status = CheckCall(services_.callers, *context);
      !status.ok()) {
    return Answer(context, status);
  }
  if (!request->repository_name().empty()) {
    return Answer(context, OneRepository());
  }
  // Those that are ready are known without looking at the folders.
  if (request->ready() || options_.model_repository.empty()) {
    FillIndex(*request, *response);
    return Answer(context, absl::OkStatus());
  }
  return AnswerFromRepository(context, [this, request, response] {
    FillIndex(*request, *response);
    return absl::OkStatus();
  });
}

InferenceService::Reactor* InferenceService::RepositoryModelLoad(
    Context* context, const inference::RepositoryModelLoadRequest* request,
    inference::RepositoryModelLoadResponse*) {
  absl::Status status = CheckControl(*context);
  if (!status.ok()) return Answer(context, status);
  if (!request->parameters().empty()) {
    return Answer(context,
                  absl::UnimplementedError(absl::StrCat(
                      request->parameters().begin()->first.substr(0, 64),
                      ": models are loaded from the server's own folders "
                      "(expected no parameters)")));
  }
  const absl::StatusOr<std::string> name = NameIn(*request);
  if (!name.ok()) return Answer(context, name.status());
  return AnswerFromRepository(
      context, [this, name = *name] { return repository_.Load(name); });
}

InferenceService::Reactor* InferenceService::RepositoryModelUnload(
    Context* context, const inference::RepositoryModelUnloadRequest* request,
    inference::RepositoryModelUnloadResponse*) {
  absl::Status status = CheckControl(*context);
  if (!status.ok()) return Answer(context, status);
  const absl::StatusOr<std::string> name = NameIn(*request);
  if (!name.ok()) return Answer(context, name.status());
  return AnswerFromRepository(
      context, [this, name = *name] { return repository_.Unload(name); });
}

}  // namespace attention::server
