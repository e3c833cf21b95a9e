#include "server/resident/resident_store.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "absl/memory/memory.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "server/base/file_descriptor.h"
#include "server/base/out_of_memory.h"

namespace attention::server {
namespace {

// How often it is looked for sequences that have been idle for too long.
constexpr std::chrono::seconds kExpiryTime{1};
constexpr int64_t kShareOfMemoryLimit = 8;
constexpr size_t kLongestFileName = 255;

store::StoreOptions OptionsOf(const ServerOptions& options) {
  return {.memory_limit = ResidentMemoryLimit(options),
          .evict = options.resident_evict};
}

std::optional<store::Duration> IdleLimitOf(const ServerOptions& options) {
  if (options.resident_idle_limit.count() == 0) return std::nullopt;
  return options.resident_idle_limit;
}

// By a file: what access(2) grants root, a file system may refuse.
absl::Status CheckFolder(const std::string& folder) {
  if (folder.empty()) return absl::OkStatus();
  std::string path = folder + "/.check-XXXXXX";
  const FileDescriptor file(::mkostemp(path.data(), O_CLOEXEC));
  if (!file.ok()) {
    return absl::ErrnoToStatus(
        errno, absl::StrCat("--resident-folder: '", folder,
                            "' (expected a folder in which this server can "
                            "make files)"));
  }
  ::unlink(path.c_str());
  return absl::OkStatus();
}

bool IsFileName(absl::string_view name) {
  if (name.empty() || name.size() > kLongestFileName || name[0] == '.') {
    return false;
  }
  for (const char c : name) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) &&
        absl::string_view("._-:+=@").find(c) == absl::string_view::npos) {
      return false;
    }
  }
  return true;
}

}  // namespace

int64_t ResidentMemoryLimit(const ServerOptions& options) {
  if (options.resident_memory_limit > 0) return options.resident_memory_limit;
  return options.memory_limit / kShareOfMemoryLimit;
}

absl::StatusOr<std::unique_ptr<ResidentStore>> ResidentStore::Open(
    const ServerOptions& options) {
  if (absl::Status folder = CheckFolder(options.resident_folder);
      !folder.ok()) {
    return folder;
  }
  uint64_t incarnation = 0;
  if (getrandom(&incarnation, sizeof(incarnation), 0) !=
      static_cast<ssize_t>(sizeof(incarnation))) {
    return absl::InternalError("the system has no random bits");
  }
  return absl::WrapUnique(new ResidentStore(options, incarnation));
}

ResidentStore::ResidentStore(const ServerOptions& options, uint64_t incarnation)
    : folder_(options.resident_folder),
      idle_limit_(IdleLimitOf(options)),
      incarnation_(incarnation),
      store_(OptionsOf(options)),
      expiry_([this] { ExpireNowAndThen(); }) {}

ResidentStore::~ResidentStore() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  stop_changed_.notify_all();
  expiry_.join();
}

// A few at a time, so that nobody waits for the store meanwhile.
int64_t ResidentStore::Expire() {
  int64_t expired = 0;
  while (true) {
    const store::Expired some = store_.Expire(store::Clock::now());
    expired += some.sequences;
    if (!some.more) return expired;
    std::this_thread::yield();
  }
}

void ResidentStore::ExpireNowAndThen() {
  int64_t evicted = 0;
  std::unique_lock lock(mutex_);
  while (!stop_changed_.wait_for(lock, kExpiryTime, [this] { return stop_; })) {
    lock.unlock();
    const auto look = [&] {
      const int64_t expired = Expire();
      if (expired > 0) {
        spdlog::info(absl::StrCat(expired, " idle sequences expired"));
      }
      int64_t evictions = 0;
      for (const store::OwnerFigures& of : store_.Figures()) {
        evictions += of.evictions;
      }
      if (evictions > evicted) {
        spdlog::warn(absl::StrCat(evictions - evicted,
                                  " sequences were evicted to make room"));
        evicted = evictions;
      }
      return absl::OkStatus();
    };
    // What a look lacks the memory for, the next one does.
    WithoutBadAlloc(look).IgnoreError();
    lock.lock();
  }
}

absl::StatusOr<std::string> ResidentStore::PathOf(
    absl::string_view file) const {
  if (folder_.empty()) {
    return absl::FailedPreconditionError(
        "file: this server has no folder for sequences (--resident-folder)");
  }
  if (!IsFileName(file)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "file: '", file,
        "' (expected 1 to 255 letters, digits and . _ - : + = @, not beginning "
        "with a dot)"));
  }
  return absl::StrCat(folder_, "/", file);
}

}  // namespace attention::server
