// The protocol's extension for model repositories.
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/out_of_memory.h"
#include "server/scheduling/retry_after.h"
#include "server/services/caller_of_call.h"
#include "server/services/inference_management.h"

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

// An empty response, where it was done.
template <typename Response>
absl::StatusOr<Response> Done(const absl::Status& status) {
  if (!status.ok()) return status;
  return Response();
}

}  // namespace

absl::Status InferenceManagement::CheckControl(const Caller* caller) const {
  absl::Status status = CheckRight(caller, Right::kModelControl);
  if (!status.ok() || options_.allow_model_control) return status;
  return absl::UnavailableError(
      "loading and unloading models is switched off (the server's "
      "--allow-model-control)");
}

template <typename Response>
void InferenceManagement::InTurn(Waiter waiter, Reply<Response> reply,
                                 std::function<absl::StatusOr<Response>()> work,
                                 SerialQueue::Places places) {
  repository_queue_.Add(
      [reply = std::move(reply),
       work = std::move(work)](const absl::Status& turn) {
        reply(turn.ok() ? WithoutBadAlloc([&work] { return work(); },
                                          OutOfMemoryForNow)
                        : turn);
      },
      places, std::move(waiter));
}

inference::RepositoryIndexResponse InferenceManagement::Index(
    bool ready_alone) const {
  inference::RepositoryIndexResponse response;
  std::set<std::string> ready;
  for (const auto& model : models_.List()) {
    ready.insert(model->name);
    auto& entry = *response.add_models();
    entry.set_name(model->name);
    entry.set_version(kModelVersion);
    entry.set_state("READY");
  }
  if (ready_alone) return response;
  for (const ModelIndexEntry& model : repository_.Index()) {
    if (ready.count(model.name) > 0) continue;
    auto& entry = *response.add_models();
    entry.set_name(model.name);
    entry.set_version(kModelVersion);
    entry.set_state("UNAVAILABLE");
    entry.set_reason(model.reason);
  }
  return response;
}

void InferenceManagement::RepositoryIndex(
    const Caller* /*caller*/, const inference::RepositoryIndexRequest& request,
    Waiter waiter, Reply<inference::RepositoryIndexResponse> reply) {
  if (!request.repository_name().empty()) return reply(OneRepository());
  // Those that are ready are known without looking at the folders.
  const bool ready_alone = request.ready();
  if (ready_alone || options_.model_repository.empty()) {
    return reply(Index(ready_alone));
  }
  // It needs no right, and may not take the places of those who have one.
  InTurn<inference::RepositoryIndexResponse>(
      std::move(waiter), std::move(reply),
      [this] { return Index(/*ready_alone=*/false); },
      SerialQueue::Places::kHalf);
}

void InferenceManagement::RepositoryModelLoad(
    const Caller* caller, const inference::RepositoryModelLoadRequest& request,
    Waiter waiter, Reply<inference::RepositoryModelLoadResponse> reply) {
  using Response = inference::RepositoryModelLoadResponse;
  if (absl::Status may = CheckControl(caller); !may.ok()) return reply(may);
  if (!request.parameters().empty()) {
    return reply(absl::UnimplementedError(
        absl::StrCat(request.parameters().begin()->first.substr(0, 64),
                     ": models are loaded from the server's own folders "
                     "(expected no parameters)")));
  }
  const absl::StatusOr<std::string> name = NameIn(request);
  if (!name.ok()) return reply(name.status());
  InTurn<Response>(std::move(waiter), std::move(reply), [this, name = *name] {
    return Done<Response>(repository_.Load(name));
  });
}

void InferenceManagement::RepositoryModelUnload(
    const Caller* caller,
    const inference::RepositoryModelUnloadRequest& request, Waiter waiter,
    Reply<inference::RepositoryModelUnloadResponse> reply) {
  using Response = inference::RepositoryModelUnloadResponse;
  if (absl::Status may = CheckControl(caller); !may.ok()) return reply(may);
  for (const auto& [name, value] : request.parameters()) {
    // Triton's clients send it always; no model has dependents.
    if (name == "unload_dependents") continue;
    return reply(absl::UnimplementedError(
        absl::StrCat(name.substr(0, 64),
                     ": unknown (expected unload_dependents, or no "
                     "parameters)")));
  }
  const absl::StatusOr<std::string> name = NameIn(request);
  if (!name.ok()) return reply(name.status());
  InTurn<Response>(std::move(waiter), std::move(reply), [this, name = *name] {
    return Done<Response>(repository_.Unload(name));
  });
}

}  // namespace attention::server
