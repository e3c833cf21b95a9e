#include "server/base/file_watch.h"

#include <sys/stat.h>

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"

namespace attention::server {
namespace {

constexpr std::chrono::milliseconds kPause{250};
// After which files that stayed the same are whole: half a second.
constexpr int kLooks = 2;

}  // namespace

FileWatch::FileWatch(std::vector<std::string> files,
                     std::function<void()> changed)
    : files_(std::move(files)),
      changed_(std::move(changed)),
      at_start_(State()),
      thread_([this](const std::stop_token& stop) { Run(stop); }) {}

// What another file, or another content, has another of.
std::string FileWatch::State() const {
  std::string state;
  for (const std::string& file : files_) {
    struct stat status {};
    if (::stat(file.c_str(), &status) != 0) status = {};
    absl::StrAppend(&state, status.st_dev, ".", status.st_ino, ".",
                    status.st_size, ".", status.st_mtim.tv_sec, ".",
                    status.st_mtim.tv_nsec, ".", status.st_ctim.tv_sec, ".",
                    status.st_ctim.tv_nsec, " ");
  }
  return state;
}

void FileWatch::CallSoon() {
  const std::lock_guard lock(mutex_);
  asked_ = true;
  wake_.notify_all();
}

void FileWatch::Run(const std::stop_token& stop) {
  std::string known = at_start_;
  std::string seen = at_start_;
  int the_same = 0;  // looks in a row
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait_for(lock, stop, kPause, [this] { return asked_; });
    if (stop.stop_requested()) return;
    const bool asked = std::exchange(asked_, false);
    std::string state = State();
    the_same = state == seen ? the_same + 1 : 0;
    seen = std::move(state);
    if (!asked && (the_same < kLooks || seen == known)) continue;
    known = seen;
    lock.unlock();
    changed_();
    lock.lock();
  }
}

}  // namespace attention::server
