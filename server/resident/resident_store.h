#ifndef ATTENTION_SERVER_RESIDENT_RESIDENT_STORE_H_
#define ATTENTION_SERVER_RESIDENT_RESIDENT_STORE_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "core/store/store.h"
#include "server/callers/caller.h"
#include "server/options/options.h"
#include "server/request/resident_access.h"

namespace attention::server {

/// Keys and values that stay on this server: the store, with whose sequences
/// are whose, when they expire, and where their files are.
class ResidentStore {
 public:
  /// INVALID_ARGUMENT or NOT_FOUND, beginning with --resident-folder, where
  /// that is no folder. The options are those in effect: memory_limit is not 0.
  static absl::StatusOr<std::unique_ptr<ResidentStore>> Open(
      const ServerOptions& options);
  ~ResidentStore();
  ResidentStore(const ResidentStore&) = delete;
  ResidentStore& operator=(const ResidentStore&) = delete;

  /// The store's name for whoever calls: the caller's own, or one that all
  /// share where there is no callers file.
  static std::string OwnerOf(const Caller* caller) {
    return caller == nullptr ? std::string() : caller->name;
  }

  ResidentAccess AccessOf(const Caller* caller) {
    return {&store_, OwnerOf(caller), idle_limit_};
  }

  store::Store& store() { return store_; }
  const store::Store& store() const { return store_; }

  /// A number of this run of the server.
  uint64_t incarnation() const { return incarnation_; }
  /// Of sequences that say nothing of it; absent: they never expire.
  std::optional<store::Duration> idle_limit() const { return idle_limit_; }

  /// Where a sequence's file of this name is. FAILED_PRECONDITION without a
  /// folder; INVALID_ARGUMENT for a name that is not 1 to 255 letters, digits
  /// and . _ - : + = @, or begins with a dot: none leads out of the folder.
  absl::StatusOr<std::string> PathOf(absl::string_view file) const;

 private:
  explicit ResidentStore(const ServerOptions& options, uint64_t incarnation);
  int64_t Expire();
  void ExpireNowAndThen();

  const std::string folder_;
  const std::optional<store::Duration> idle_limit_;
  const uint64_t incarnation_;
  store::Store store_;
  std::mutex mutex_;
  std::condition_variable stop_changed_;
  bool stop_ = false;
  std::thread expiry_;  // last: it uses the others
};

/// What sequences may take together: --resident-memory-limit, or an eighth of
/// --memory-limit where that is 0.
int64_t ResidentMemoryLimit(const ServerOptions& options);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_RESIDENT_RESIDENT_STORE_H_
