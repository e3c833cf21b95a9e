#include "server/models/model_table.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "server/request/scoring_names.h"

namespace attention::server {
namespace {

std::shared_ptr<Model> BuiltIn(const ScoringName& scoring) {
  auto model = std::make_shared<Model>();
  model->name = static_cast<std::string>(scoring.model);
  model->defaults.scoring = scoring.scoring;
  model->counters = std::make_shared<ModelCounters>(model->name);
  return model;
}

absl::Status CheckVersion(const std::string& name, const std::string& version) {
  if (version.empty() || version == kModelVersion) return absl::OkStatus();
  const std::string shown = version.substr(0, 64);
  if (!absl::c_all_of(version, absl::ascii_isdigit)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model_version: '", shown, "' (expected a number or nothing)"));
  }
  return absl::NotFoundError(absl::StrCat("model_version: '", name,
                                          "' has no version ", shown,
                                          " (expected ", kModelVersion, ")"));
}

}  // namespace

ModelTable::ModelTable(const ModelRepository& repository)
    : repository_(repository) {
  for (const ScoringName& scoring : ScoringNames()) {
    const std::shared_ptr<Model> model = BuiltIn(scoring);
    built_in_.emplace(model->name, model);
  }
}

std::shared_ptr<const Model> ModelTable::ModelOfSet(
    const std::string& name) const {
  const auto set = repository_.Find(name);
  if (!set.ok()) return nullptr;
  auto model = std::make_shared<Model>();
  model->name = name;
  model->defaults = (*set)->defaults;
  model->sequences = (*set)->sequences;
  model->owner = *set;
  const std::lock_guard lock(mutex_);
  std::shared_ptr<ModelCounters>& counters = counters_[name];
  if (counters == nullptr) counters = std::make_shared<ModelCounters>(name);
  model->counters = counters;
  return model;
}

absl::StatusOr<std::shared_ptr<const Model>> ModelTable::Find(
    const std::string& name, const std::string& version) const {
  const auto found = built_in_.find(name);
  std::shared_ptr<const Model> model =
      found != built_in_.end() ? found->second : ModelOfSet(name);
  if (model == nullptr) {
    // The words that clients of Triton look for.
    return absl::NotFoundError(absl::StrCat(
        "Request for unknown model: '", name.substr(0, 256), "' is not found"));
  }
  if (absl::Status status = CheckVersion(name, version); !status.ok()) {
    return status;
  }
  return model;
}

std::vector<std::shared_ptr<const Model>> ModelTable::List() const {
  Models all = built_in_;
  for (const std::string& name : repository_.Ready()) {
    if (auto model = ModelOfSet(name)) all.emplace(name, model);
  }
  std::vector<std::shared_ptr<const Model>> models;
  models.reserve(all.size());
  for (const auto& [name, model] : all) models.push_back(model);
  return models;
}

std::map<std::string, std::shared_ptr<const ModelCounters>>
ModelTable::Counters() const {
  std::map<std::string, std::shared_ptr<const ModelCounters>> all;
  for (const auto& [name, model] : built_in_) {
    all.emplace(name, model->counters);
  }
  const std::lock_guard lock(mutex_);
  all.insert(counters_.begin(), counters_.end());
  return all;
}

}  // namespace attention::server
