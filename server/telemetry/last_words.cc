#include "server/telemetry/last_words.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/system/system_error.hpp>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <new>
#include <system_error>

#include "absl/strings/string_view.h"
#include "server/telemetry/log.h"
#include "server/telemetry/log_sink.h"

namespace attention::server {
namespace {

std::atomic<bool> in_json{false};
std::atomic<bool> said_them{false};
std::atomic<bool> started{false};

constexpr absl::string_view kRefused =
    "the system has refused a thread or another resource: ";
// Where nothing is mapped: a block that malloc() could not give, and its first
// members.
constexpr uintptr_t kNullPage = 4096;

// One line. Nothing here may allocate, or wait for long.
void Say(absl::string_view what, absl::string_view details = "") {
  std::array<char, 512> line;
  size_t size = 0;
  const auto add = [&](absl::string_view text, bool checked) {
    for (const char c : text) {
      if (size + 4 >= line.size()) return;
      const bool plain = c >= ' ' && c <= '~' && c != '"' && c != '\\';
      line[size++] = plain || !checked ? c : '?';
    }
  };
  if (in_json) add(R"({"level":"critical","message":")", false);
  add("attention-server: ", false);
  add(what, true);
  add(details, true);
  if (in_json) add(R"("})", false);
  line[size++] = '\n';
  said_them = true;
  WriteWhenRead(STDERR_FILENO, {line.data(), size}, std::chrono::seconds(1));
}

// Whether the last call of this thread that failed was for want of memory: who
// calls abort() where malloc() has failed does nothing in between. Where such a
// failure is handled, errno is set to 0, so that it says nothing of what comes
// later: by ThrowBadAlloc(), and where malloc() and mmap() are called.
bool MemoryFailed() { return errno == ENOMEM; }

// What `new` calls where there is no memory.
[[noreturn]] void ThrowBadAlloc() {
  try {
    throw std::bad_alloc();
  } catch (const std::bad_alloc&) {
    errno = 0;  // here, because finding room for the exception may fail too
    throw;
  }
}

[[noreturn]] void SayThatThereIsNone(absl::string_view what,
                                     absl::string_view details = "") {
  Say(what, details);
  _exit(1);
}

void OnAbort(int signal) {
  const bool no_memory = MemoryFailed();
  if (!said_them && !started && ToldOfFatal()) {
    SayThatThereIsNone(
        "could not start, most likely for want of a thread or of memory");
  }
  if (!said_them && !ToldOfFatal()) {
    if (no_memory) SayThatThereIsNone("aborted, there is no memory to be had");
    Say("aborted: a fault in the program, of which the library that found it "
        "may tell above; or somebody sent SIGABRT");
  }
  // With its status and a core dump, once this returns.
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

// Not every library looks whether malloc() has given something: gRPC 1.51 does
// not where it reads from a socket. It ends as it would have, with a core dump:
// the instruction is tried again, with nobody to handle it.
void OnSegmentationFault(int, siginfo_t* info, void*) {
  if (reinterpret_cast<uintptr_t>(info->si_addr) >= kNullPage) return;
  const bool no_memory = MemoryFailed();
  Say("a null pointer was used",
      no_memory ? ", there is no memory to be had" : "");
  if (no_memory && !started) _exit(1);
}

void HandleSegmentationFaults() {
  struct sigaction before = {};
  sigaction(SIGSEGV, nullptr, &before);
  if ((before.sa_flags & SA_SIGINFO) != 0 || before.sa_handler != SIG_DFL) {
    return;  // a sanitizer's
  }
  struct sigaction action = {};
  action.sa_sigaction = OnSegmentationFault;
  action.sa_flags = static_cast<int>(SA_SIGINFO | SA_RESETHAND);
  sigemptyset(&action.sa_mask);
  sigaction(SIGSEGV, &action, nullptr);
}

[[noreturn]] void OnTerminate() {
  try {
    const std::exception_ptr current = std::current_exception();
    if (current != nullptr) std::rethrow_exception(current);
    Say("terminated");
  } catch (const std::bad_alloc&) {
    SayThatThereIsNone("there is no memory to be had");
  } catch (const std::system_error& error) {
    SayThatThereIsNone(kRefused, error.what());
  } catch (const boost::system::system_error& error) {  // of Asio's threads
    SayThatThereIsNone(kRefused, error.what());
  } catch (const std::exception& error) {
    Say("unexpected: ", error.what());
    // oneTBB tells of a thread that cannot be made with a std::runtime_error.
    if (!started) _exit(1);
  } catch (...) {
    Say("an exception of an unknown type");
  }
  std::abort();
}

}  // namespace

void SayLastWords(const std::string& log_format) {
  in_json = log_format == "json";
  std::set_terminate(OnTerminate);
  std::set_new_handler(ThrowBadAlloc);
  std::signal(SIGABRT, OnAbort);
  HandleSegmentationFaults();
}

void EndAfter(std::chrono::milliseconds time) {
  std::signal(SIGALRM, [](int) {
    SayThatThereIsNone("a part of the server has not ended in time");
  });
  constexpr std::chrono::seconds kMost = std::chrono::hours(24 * 365);
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(time);
  ::alarm(static_cast<unsigned>(std::min(seconds, kMost).count()));
}

void NoteStart() { started = true; }

}  // namespace attention::server
