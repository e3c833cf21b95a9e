#ifndef ATTENTION_SERVER_MODELS_MODEL_TABLE_H_
#define ATTENTION_SERVER_MODELS_MODEL_TABLE_H_

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/models/model.h"
#include "server/models/model_repository.h"

namespace attention::server {

/// Every model that can be called, by name. Safe for several threads at once.
class ModelTable {
 public:
  /// The four built-in models, one for each scoring function, and the sets of
  /// `repository`, which outlives the table.
  explicit ModelTable(const ModelRepository& repository);

  /// A model, for as long as the caller holds it. NOT_FOUND for an unknown name
  /// and for a version that it does not have; INVALID_ARGUMENT for a version
  /// that is not a number. An empty version is the only one.
  absl::StatusOr<std::shared_ptr<const Model>> Find(
      const std::string& name, const std::string& version) const;

  /// All that can be called, in order of their names.
  std::vector<std::shared_ptr<const Model>> List() const;

  /// The counters of each, also of sets that were unloaded, by name.
  std::map<std::string, std::shared_ptr<const ModelCounters>> Counters() const;

 private:
  using Models = std::map<std::string, std::shared_ptr<const Model>>;

  // The model of a set, null where there is none of that name. Its counters
  // are the name's: they outlive the set when it is loaded anew.
  std::shared_ptr<const Model> ModelOfSet(const std::string& name) const;

  const ModelRepository& repository_;
  Models built_in_;
  mutable std::mutex mutex_;
  // No sets are kept here: one that is unloaded must give its memory back.
  mutable std::map<std::string, std::shared_ptr<ModelCounters>> counters_;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_MODELS_MODEL_TABLE_H_
