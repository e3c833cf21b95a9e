#include "server/memory/fault_guard.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"

namespace attention::server {
namespace {

// One guarded mapping; free where begin is 0. Written under Mutex(), read by
// the signal handler at any moment, so all of it is atomic, and every access is
// sequentially consistent: their order is what a reader relies on.
struct Slot {
  std::atomic<uintptr_t> begin;
  std::atomic<uintptr_t> end;
  std::atomic<bool> faulted;
};
static_assert(std::atomic<uintptr_t>::is_always_lock_free);
static_assert(std::atomic<bool>::is_always_lock_free);

// Zero-initialised before any code runs: the handler needs no constructor.
std::array<Slot, FaultGuard::kMostGuards> slots;

// What SIGBUS did before; written once, before the handler is installed.
struct sigaction previous_action;

std::mutex& Mutex() {
  static auto* const mutex = new std::mutex;
  return *mutex;
}

// Puts zeroed memory over the whole mapping, not the one page: the request has
// failed in any case, and so it fails after one fault and not after one for
// each page. The raw call, because only that is safe in a handler whatever
// stands between (sanitizers wrap mmap).
bool MapZeros(uintptr_t begin, uintptr_t end) {
  const int64_t mapped =
      syscall(SYS_mmap, begin, end - begin, PROT_READ | PROT_WRITE,
              MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0L);
  return mapped == static_cast<int64_t>(begin);
}

// Whether `address` lies in a guarded mapping, which then has memory again.
//
// Slots change while they are read here, but not the one that counts: whoever
// touches guarded memory holds its guard. Of any other slot, begin is read
// again after end, so that one's begin is never taken with another's end.
bool Recover(uintptr_t address) {
  for (Slot& slot : slots) {
    const uintptr_t begin = slot.begin.load();
    if (begin == 0 || address < begin) continue;
    const uintptr_t end = slot.end.load();
    if (address >= end || slot.begin.load() != begin) continue;
    slot.faulted.store(true);
    return MapZeros(begin, end);
  }
  return false;
}

// What would have happened without this handler.
void PassOn(int signal, siginfo_t* info, void* context) {
  const bool sent_by_kill = info->si_code <= 0;
  if ((previous_action.sa_flags & SA_SIGINFO) != 0) {
    previous_action.sa_sigaction(signal, info, context);
  } else if (previous_action.sa_handler == SIG_IGN && sent_by_kill) {
    return;  // a fault, on the other hand, cannot be ignored
  } else if (previous_action.sa_handler != SIG_DFL &&
             previous_action.sa_handler != SIG_IGN) {
    previous_action.sa_handler(signal);
  } else {
    struct sigaction end_process = {};
    end_process.sa_handler = SIG_DFL;
    sigaction(signal, &end_process, nullptr);
    raise(signal);  // blocked until the handler returns
  }
}

void HandleBusError(int signal, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  const bool missing_page = info->si_code == BUS_ADRERR;
  if (!missing_page || !Recover(reinterpret_cast<uintptr_t>(info->si_addr))) {
    PassOn(signal, info, context);
  }
  errno = saved_errno;
}

void InstallHandler() {
  sigaction(SIGBUS, nullptr, &previous_action);
  struct sigaction action = {};
  action.sa_sigaction = HandleBusError;
  action.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, nullptr);
}

}  // namespace

absl::StatusOr<FaultGuard> FaultGuard::Create(void* begin, size_t size) {
  static std::once_flag installed;
  std::call_once(installed, InstallHandler);
  const std::lock_guard lock(Mutex());
  for (int i = 0; i < kMostGuards; ++i) {
    Slot& slot = slots[i];
    if (slot.begin.load() != 0) continue;
    slot.faulted.store(false);
    slot.end.store(reinterpret_cast<uintptr_t>(begin) + size);
    slot.begin.store(
        reinterpret_cast<uintptr_t>(begin));  // last: now it counts
    return FaultGuard(i);
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      "shared memory: ", kMostGuards,
      " mappings are in use, those of unregistered regions that requests "
      "still hold among them (expected fewer)"));
}

FaultGuard::FaultGuard(FaultGuard&& other) noexcept
    : slot_(std::exchange(other.slot_, -1)) {}

// What this one stood over is released with `other`.
FaultGuard& FaultGuard::operator=(FaultGuard&& other) noexcept {
  std::swap(slot_, other.slot_);
  return *this;
}

FaultGuard::~FaultGuard() {
  if (slot_ < 0) return;
  const std::lock_guard lock(Mutex());
  slots[slot_].begin.store(0);
}

bool FaultGuard::faulted() const { return slots[slot_].faulted.load(); }

}  // namespace attention::server
