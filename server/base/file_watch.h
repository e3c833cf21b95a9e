#ifndef ATTENTION_SERVER_BASE_FILE_WATCH_H_
#define ATTENTION_SERVER_BASE_FILE_WATCH_H_

#include <condition_variable>
#include <functional>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

namespace attention::server {

/// Sees files change, on a thread of its own. It asks for their state, so that
/// it works on every file system and where a link is set to other files, as
/// Kubernetes does.
class FileWatch {
 public:
  /// `changed` is called on the watch's thread when one of the files is another
  /// than before, and all have then been the same for half a second: a
  /// certificate and its key are not replaced in the same moment. Files that
  /// are not there yet, or not any more, are watched as well.
  FileWatch(std::vector<std::string> files, std::function<void()> changed);

  /// Has `changed` called without waiting for a change.
  void CallSoon();

 private:
  std::string State() const;
  void Run(const std::stop_token& stop);

  const std::vector<std::string> files_;
  const std::function<void()> changed_;
  const std::string at_start_;
  std::mutex mutex_;
  std::condition_variable_any wake_;
  bool asked_ = false;
  std::jthread thread_;  // last: it uses the others
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_BASE_FILE_WATCH_H_
