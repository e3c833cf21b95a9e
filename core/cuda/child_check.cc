#include "core/cuda/child_check.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace attention::cuda {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// A program that was started, and what it writes, line by line. It is killed
// when this ends.
class Child {
 public:
  static absl::StatusOr<Child> Start(const std::vector<std::string>& words);
  ~Child();
  Child(Child&& other) noexcept
      : pid_(std::exchange(other.pid_, -1)),
        output_(std::exchange(other.output_, -1)) {}
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  Child& operator=(Child&&) = delete;

  // The next line; nothing at the end. DEADLINE_EXCEEDED after `patience`.
  absl::StatusOr<std::optional<std::string>> ReadLine(milliseconds patience);

  // How it ended: "ended with code 1", "was ended by SIGABRT".
  std::string Outcome();

 private:
  Child(pid_t pid, int output) : pid_(pid), output_(output) {}

  // False where it has not ended by then.
  bool WaitFor(milliseconds time, int& status) const;

  pid_t pid_;
  int output_;
  std::string text_;  // what was read and not returned
};

absl::StatusOr<Child> Child::Start(const std::vector<std::string>& words) {
  std::array<int, 2> ends = {};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    return absl::ErrnoToStatus(errno, "pipe2");
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  // Sockets and files that others have opened are none of its business.
  posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
  // A server waits for some signals and ignores others; both are inherited.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t signals;
  sigemptyset(&signals);
  posix_spawnattr_setsigmask(&attributes, &signals);
  sigfillset(&signals);
  posix_spawnattr_setsigdefault(&attributes, &signals);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  // The program's own strings, which it may write to, and does not.
  for (const std::string& word : words) {
    arguments.push_back(const_cast<char*>(word.c_str()));
  }
  arguments.push_back(nullptr);
  pid_t pid = -1;
  const int error = posix_spawn(&pid, words[0].c_str(), &actions, &attributes,
                                arguments.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (error != 0) {
    close(ends[0]);
    return absl::FailedPreconditionError(absl::StrCat(
        words[0], ", which checks the CUDA plugin, cannot be started: ",
        std::strerror(error)));
  }
  return Child(pid, ends[0]);
}

bool Child::WaitFor(milliseconds time, int& status) const {
  const Clock::time_point end = Clock::now() + time;
  while (true) {
    const pid_t ended = waitpid(pid_, &status, WNOHANG);
    if (ended == pid_) return true;
    // Somebody else waits for all children of this process.
    if (ended < 0 && errno == ECHILD) return false;
    if (Clock::now() >= end) return false;
    std::this_thread::sleep_for(milliseconds(2));
  }
}

Child::~Child() {
  if (output_ >= 0) close(output_);
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  // One that waits within a driver may not end even so: it is left behind.
  int status = 0;
  WaitFor(milliseconds(2000), status);
}

absl::StatusOr<std::optional<std::string>> Child::ReadLine(
    milliseconds patience) {
  const Clock::time_point end = Clock::now() + patience;
  while (true) {
    if (const size_t newline = text_.find('\n'); newline != std::string::npos) {
      std::string line = text_.substr(0, newline);
      text_.erase(0, newline + 1);
      return line;
    }
    const auto left =
        std::chrono::ceil<milliseconds>(end - Clock::now()).count();
    if (left <= 0) return absl::DeadlineExceededError("");
    pollfd waited = {output_, POLLIN, 0};
    // In turns, because poll() counts in int.
    const int ready =
        poll(&waited, 1, static_cast<int>(std::min<int64_t>(left, 60'000)));
    if (ready == 0 || (ready < 0 && errno == EINTR)) continue;
    std::array<char, 512> buffer;
    const ssize_t count = read(output_, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return std::nullopt;
    text_.append(buffer.data(), static_cast<size_t>(count));
  }
}

std::string Child::Outcome() {
  int status = 0;
  // Its output has ended: what is left of it takes no time.
  if (!WaitFor(milliseconds(2000), status)) return "closed its output";
  pid_ = -1;
  if (WIFSIGNALED(status)) {
    const char* const name = sigabbrev_np(WTERMSIG(status));
    return absl::StrCat("was ended by SIG", name == nullptr ? "?" : name);
  }
  return absl::StrCat("ended with code ", WEXITSTATUS(status));
}

struct Outcome {
  absl::Status status;
  absl::Status gemm;   // why there is no cuBLAS
  bool wgmma = false;  // whether Hopper's own kernels may have run
  std::string devices;
};

Outcome RunOnce(const std::vector<std::string>& words, milliseconds patience) {
  Outcome outcome;
  absl::StatusOr<Child> child = Child::Start(words);
  if (!child.ok()) {
    outcome.status = child.status();
    return outcome;
  }
  std::string at = "before its first case";
  while (true) {
    const auto line = child->ReadLine(patience);
    if (!line.ok()) {
      outcome.status = absl::InternalError(
          absl::StrCat(at, ": no answer within ", patience.count(),
                       " ms: the device hangs"));
      return outcome;
    }
    if (!*line) {
      outcome.status = absl::InternalError(
          absl::StrCat(at, ": the check ", child->Outcome()));
      return outcome;
    }
    absl::string_view said = **line;
    if (said == kSaysDone) return outcome;
    if (said == kSaysWgmma) outcome.wgmma = true;
    if (absl::ConsumePrefix(&said, kSaysNoGemm)) {
      outcome.gemm = absl::UnavailableError(said);
    }
    if (absl::ConsumePrefix(&said, kSaysDevices)) {
      outcome.devices = static_cast<std::string>(said);
    }
    if (absl::ConsumePrefix(&said, kSaysCase)) {
      at = static_cast<std::string>(said);
    }
    if (absl::ConsumePrefix(&said, kSaysFailed)) {
      outcome.status = absl::InternalError(said);
      return outcome;
    }
  }
}

}  // namespace

ChildCheck CheckInChild(const std::string& plugin, milliseconds patience) {
  const std::string program =
      (std::filesystem::path(plugin).parent_path() / kCheckProgram).string();
  Outcome all = RunOnce({program, plugin}, patience);
  if (all.status.ok() || !all.wgmma) {
    return {all.status, {}, all.gemm, all.devices};
  }
  const Outcome without = RunOnce({program, plugin, kWithoutWgmma}, patience);
  if (without.status.ok()) return {{}, all.status, all.gemm, all.devices};
  return {absl::InternalError(absl::StrCat(
              all.status.message(),
              "; without Hopper's own kernels: ", without.status.message())),
          {},
          all.gemm,
          all.devices};
}

}  // namespace attention::cuda
