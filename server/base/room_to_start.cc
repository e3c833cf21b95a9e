#include "server/base/room_to_start.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <cstdint>
#include <future>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"

namespace attention::server {
namespace {

// Beside the stacks: what gRPC, the log and the first small calls take.
constexpr size_t kOtherBytes = size_t{32} << 20;

std::string Limit(int resource, rlim_t unit) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return "unlimited";
  }
  return absl::StrCat(static_cast<int64_t>(limit.rlim_cur / unit));
}

bool CanMap(size_t bytes) {
  void* pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) return false;
  munmap(pages, bytes);
  return true;
}

// Threads that wait until this ends.
class WaitingThreads {
 public:
  ~WaitingThreads() {
    release_.set_value();
    for (std::thread& thread : threads_) thread.join();
  }

  // Throws std::system_error where there is none to be had.
  void AddOne() {
    threads_.emplace_back([released = released_] { released.wait(); });
  }
  size_t count() const { return threads_.size(); }

 private:
  std::promise<void> release_;
  const std::shared_future<void> released_ = release_.get_future().share();
  std::vector<std::thread> threads_;
};

}  // namespace

absl::Status CheckRoomToStart(absl::string_view who, int threads) {
  WaitingThreads waiting;
  std::string missing;
  try {
    while (waiting.count() < static_cast<size_t>(threads)) waiting.AddOne();
    if (!CanMap(kOtherBytes)) {
      missing = absl::StrCat(kOtherBytes >> 20, " MiB of memory beside them");
    }
  } catch (const std::system_error& error) {
    missing = absl::StrCat("thread ", waiting.count() + 1,
                           " of them: ", error.code().message());
  }
  if (missing.empty()) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat(who, " takes ", threads, " threads and cannot have ",
                   missing, " (limits: ", Limit(RLIMIT_NPROC, 1),
                   " processes and threads, ", Limit(RLIMIT_AS, 1024),
                   " KiB of address space, ", Limit(RLIMIT_STACK, 1024),
                   " KiB for each stack; a container may have its own)"));
}

}  // namespace attention::server
