#include "server/models/model_repository.h"

#include <spdlog/spdlog.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/base/out_of_memory.h"
#include "server/base/utf8.h"
#include "server/models/model.h"
#include "server/request/scoring_names.h"

namespace attention::server {
namespace {

constexpr size_t kMostNameBytes = 128;
constexpr size_t kMostListed = 20;
constexpr size_t kMostReasonBytes = 1024;

// What a set could not be loaded for. It may quote a file, whatever is in it.
std::string Reason(const absl::Status& status) {
  const absl::string_view message = status.message();
  return TruncateUtf8(IsUtf8(message) ? static_cast<std::string>(message)
                                      : absl::CHexEscape(message),
                      kMostReasonBytes);
}

bool IsNameCharacter(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' ||
         c == '-' || c == '.';
}

// The models that need no folder: the scoring functions themselves.
bool IsBuiltIn(const std::string& name) {
  return absl::c_any_of(ScoringNames(), [&name](const ScoringName& scoring) {
    return scoring.model == name;
  });
}

}  // namespace

absl::Status CheckModelName(const std::string& name) {
  if (IsBuiltIn(name)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model ", Shown(name), ": the name is a built-in model's"));
  }
  if (name == kUnknownModel) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model ", Shown(name),
        ": metrics count requests without a model under the name"));
  }
  if (!name.empty() && name.size() <= kMostNameBytes &&
      absl::c_all_of(name, IsNameCharacter) &&
      absl::ascii_isalnum(static_cast<unsigned char>(name.front()))) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "model ", Shown(name), ": not a model's name (expected 1 to ",
      kMostNameBytes,
      " letters, digits and _ - . that begin with a letter or a digit)"));
}

absl::StatusOr<std::unique_ptr<ModelRepository>> ModelRepository::Open(
    const std::string& directory, int64_t most_bytes) {
  auto repository = std::make_unique<ModelRepository>();
  repository->directory_ = directory;
  repository->most_bytes_ = most_bytes;
  if (absl::Status status = repository->LoadAll(); !status.ok()) return status;
  return repository;
}

absl::Status ModelRepository::LoadAll() {
  const absl::StatusOr<std::vector<std::string>> folders = Folders();
  if (!folders.ok()) return folders.status();
  for (const std::string& name : *folders) {
    // Load() has logged what went wrong, and the index keeps it.
    Load(name).IgnoreError();
  }
  for (const std::string& name : Ready()) {
    // Somebody may have unloaded it meanwhile.
    if (!absl::c_binary_search(*folders, name)) Unload(name).IgnoreError();
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> ModelRepository::Folders() const {
  std::vector<std::string> names;
  if (directory_.empty()) return names;
  std::error_code error;
  std::filesystem::directory_iterator entry(directory_, error);
  while (!error && entry != std::filesystem::directory_iterator()) {
    std::error_code ignored;  // what cannot be looked at is no folder
    std::string name = entry->path().filename().string();
    if (!absl::StartsWith(name, ".") && entry->is_directory(ignored)) {
      names.push_back(std::move(name));
    }
    entry.increment(error);
  }
  if (error) {
    return absl::ErrnoToStatus(error.value(),
                               absl::StrCat("directory '", directory_, "'"));
  }
  absl::c_sort(names);
  return names;
}

absl::Status ModelRepository::Load(const std::string& name) {
  const std::lock_guard one_at_a_time(loading_);
  if (absl::Status status = CheckModelName(name); !status.ok()) {
    spdlog::error(static_cast<std::string>(status.message()));
    return status;
  }
  const std::string folder = absl::StrCat(directory_, "/", name);
  std::error_code ignored;
  if (directory_.empty() || !std::filesystem::is_directory(folder, ignored)) {
    return absl::NotFoundError(absl::StrCat(
        "model '", name, "': the model repository has no such folder"));
  }
  absl::StatusOr<ParameterSet> loaded = WithoutBadAlloc(
      [&] { return LoadParameterSet(name, folder, most_bytes_); });
  if (!loaded.ok()) {
    absl::Status status(
        loaded.status().code(),
        absl::StrCat("model '", name, "': ", Reason(loaded.status())));
    spdlog::error(static_cast<std::string>(status.message()));
    const std::lock_guard lock(mutex_);
    Model& model = models_[name];
    if (model.set == nullptr) {
      model.reason = Reason(status);
    }
    return status;
  }
  auto set = std::make_shared<const ParameterSet>(*std::move(loaded));
  spdlog::info(absl::StrCat("model '", name, "' is ready"));
  // The set that is replaced ends after the lock does.
  const std::lock_guard lock(mutex_);
  Model& model = models_[name];
  model.set.swap(set);
  model.reason.clear();
  return absl::OkStatus();
}

absl::Status ModelRepository::Unload(const std::string& name) {
  // It is ready, and in no folder.
  if (IsBuiltIn(name)) return CheckModelName(name);
  std::shared_ptr<const ParameterSet> unloaded;  // ends after the lock does
  const std::lock_guard lock(mutex_);
  const auto found = models_.find(name);
  if (found == models_.end() || found->second.set == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("model ", Shown(name), ": is not loaded"));
  }
  unloaded.swap(found->second.set);
  found->second.reason = "unloaded";
  spdlog::info(absl::StrCat("model '", name, "' is unloaded"));
  return absl::OkStatus();
}

std::vector<ModelIndexEntry> ModelRepository::Index() const {
  // Looked at anew, so that a folder that came since can be seen and loaded.
  std::map<std::string, ModelIndexEntry> entries;
  for (std::string& name : Folders().value_or(std::vector<std::string>())) {
    // Logged when it was met; the built-in model of that name is no folder's.
    if (IsBuiltIn(name)) continue;
    const absl::Status status = CheckModelName(name);
    ModelIndexEntry entry{status.ok() ? name : absl::CHexEscape(name),
                          ModelState::kUnavailable,
                          status.ok() ? "not loaded" : Reason(status)};
    entries.emplace(std::move(name), std::move(entry));
  }
  const std::lock_guard lock(mutex_);
  for (const auto& [name, model] : models_) {
    const bool ready = model.set != nullptr;
    if (!ready && !entries.contains(name)) continue;  // its folder is gone
    entries[name] = {name,
                     ready ? ModelState::kReady : ModelState::kUnavailable,
                     model.reason};
  }
  std::vector<ModelIndexEntry> index;
  index.reserve(entries.size());
  for (auto& [name, entry] : entries) index.push_back(std::move(entry));
  return index;
}

std::vector<std::string> ModelRepository::Ready() const {
  std::vector<std::string> names;
  const std::lock_guard lock(mutex_);
  for (const auto& [name, model] : models_) {
    if (model.set != nullptr) names.push_back(name);
  }
  return names;
}

std::string ModelRepository::FirstReady() const {
  std::vector<absl::string_view> names;
  for (const auto& [name, model] : models_) {
    if (model.set == nullptr) continue;
    if (names.size() == kMostListed) {
      names.emplace_back("...");
      break;
    }
    names.push_back(name);
  }
  return names.empty() ? "none" : absl::StrJoin(names, ", ");
}

absl::StatusOr<std::shared_ptr<const ParameterSet>> ModelRepository::Find(
    const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const auto found = models_.find(name);
  if (found != models_.end() && found->second.set != nullptr) {
    return found->second.set;
  }
  return absl::NotFoundError(
      absl::StrCat("no parameter set ", Shown(name),
                   " is loaded (those that are: ", FirstReady(), ")"));
}

}  // namespace attention::server
