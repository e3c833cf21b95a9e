#include "server/last_words.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <exception>
#include <new>
#include <system_error>

#include "absl/strings/string_view.h"
#include "server/telemetry/log.h"
#include "server/telemetry/log_sink.h"

namespace attention::server {
namespace {

std::atomic<bool> json{false};
std::atomic<bool> told{false};

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
  if (json) add(R"({"level":"critical","message":")", false);
  add("attention-server: ", false);
  add(what, true);
  add(details, true);
  if (json) add(R"("})", false);
  line[size++] = '\n';
  told = true;
  WriteWhenRead(STDERR_FILENO, {line.data(), size}, std::chrono::seconds(1));
}

void OnAbort(int) {
  // Whoever has told why may want what abort() leaves: a core dump.
  if (told || ToldOfFatal()) return;
  Say("aborted, most likely because there is no memory to be had");
  _exit(1);
}

[[noreturn]] void OnTerminate() {
  try {
    const std::exception_ptr current = std::current_exception();
    if (current != nullptr) std::rethrow_exception(current);
    Say("terminated");
  } catch (const std::bad_alloc&) {
    Say("there is no memory to be had");
    _exit(1);
  } catch (const std::system_error& error) {
    Say("the system has refused a thread or another resource: ", error.what());
    _exit(1);
  } catch (const std::exception& error) {
    Say("unexpected: ", error.what());
  } catch (...) {
    Say("an exception of an unknown type");
  }
  std::abort();
}

}  // namespace

void SayLastWords(const std::string& log_format) {
  json = log_format == "json";
  std::set_terminate(OnTerminate);
  std::signal(SIGABRT, OnAbort);
}

}  // namespace attention::server
