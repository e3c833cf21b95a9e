#ifndef ATTENTION_SERVER_CALLERS_CALLERS_H_
#define ATTENTION_SERVER_CALLERS_CALLERS_H_

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/base/file_watch.h"
#include "server/callers/caller.h"
#include "server/callers/callers_file.h"
#include "server/telemetry/log_limit.h"

namespace attention::server {

/// What a call shows of who makes it, over any protocol.
struct Credentials {
  /// The header "authorization"; none where the call has none.
  std::optional<absl::string_view> authorization;
  /// Names in the certificate of the connection.
  std::vector<std::string> certificate_names;
};

/// The callers that the callers file names. May be used from several threads at
/// once.
class Callers {
 public:
  /// Reads `file`, and again whenever it changes; where it is wrong then, what
  /// was known stays. INVALID_ARGUMENT names the option, the file and the key.
  static absl::StatusOr<std::unique_ptr<Callers>> Create(
      const std::string& file);

  /// Has the file read at once, changed or not, on a thread of its own.
  void ReadSoon() { watch_->CallSoon(); }

  /// `changed` is called, on that thread, whenever other callers are known than
  /// before; after it has been set to null it is not running any more.
  void OnChange(std::function<void()> changed);

  /// Who makes a call. A token wins over a certificate, and a wrong one is not
  /// made good by it. UNAUTHENTICATED where nobody is known by either; `peer`
  /// is for the log, which then has a line every 5 s at most.
  absl::StatusOr<std::shared_ptr<const Caller>> Find(
      const Credentials& credentials, absl::string_view peer) const;

 private:
  explicit Callers(std::string file) : file_(std::move(file)) {}

  absl::Status Read();
  void ReadAgain();
  std::shared_ptr<const CallerTable> table() const {
    const std::lock_guard lock(mutex_);
    return table_;
  }

  const std::string file_;
  mutable LogLimit unknown_;
  mutable std::mutex mutex_;
  std::shared_ptr<const CallerTable> table_;
  std::mutex changed_mutex_;  // held while changed_ runs
  std::function<void()> changed_;
  std::optional<FileWatch> watch_;  // ends before what it writes to
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_CALLERS_CALLERS_H_
