// attention-server: see --help.
#include <pthread.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "server/base/version.h"
#include "server/options/environment.h"
#include "server/options/flags.h"
#include "server/options/option_checks.h"
#include "server/server.h"
#include "server/telemetry/last_words.h"
#include "server/telemetry/log.h"
#include "server/telemetry/log_event.h"
#include "server/telemetry/log_sink.h"
#include "server/telemetry/request_facts.h"

namespace {

// A line at info, with fields where the log has them.
void Tell(absl::string_view event, absl::string_view message,
          const std::vector<attention::server::LogField>& fields) {
  if (attention::server::LogHasFields()) {
    attention::server::LogEvent(spdlog::level::info, event, message, fields);
  } else {
    spdlog::info(static_cast<std::string>(message));
  }
}

// Signals are waited for and not handled: they are blocked before any thread
// starts, so that every thread inherits it.
struct Signals {
  sigset_t awaited;
  bool survives_terminal;  // started by nohup
};

Signals BlockSignals() {
  Signals signals{};
  sigemptyset(&signals.awaited);
  for (const int signal : {SIGTERM, SIGINT, SIGQUIT, SIGHUP}) {
    sigaddset(&signals.awaited, signal);
  }
  pthread_sigmask(SIG_BLOCK, &signals.awaited, nullptr);
  signals.survives_terminal = std::signal(SIGHUP, SIG_DFL) == SIG_IGN;
  // A log that nobody reads any more must not end the server. Nor must what
  // other servers open their log files for: this one has none.
  for (const int signal : {SIGPIPE, SIGUSR1, SIGUSR2}) {
    std::signal(signal, SIG_IGN);
  }
  return signals;
}

// Whether a signal asks for the files again. Where the terminal hangs up, the
// kernel sends the same one.
bool IsReload(const siginfo_t& signal, const Signals& signals) {
  return signal.si_signo == SIGHUP &&
         (signal.si_code != SI_KERNEL || signals.survives_terminal);
}

// Has the files read again as often as it is asked for. Returns the signal that
// ends the server.
int WaitForEnd(attention::server::Server& server, const Signals& signals) {
  siginfo_t signal{};
  while (true) {
    if (sigwaitinfo(&signals.awaited, &signal) < 0) continue;  // it was stopped
    if (!IsReload(signal, signals)) return signal.si_signo;
    Tell("reload", "SIGHUP: callers, certificates and models are read again",
         {});
    server.ReadFilesAgain();
  }
}

// From here on a signal ends the process at once. It is handled, because the
// kernel drops a signal that process 1 of a container does not handle.
void LetSignalsEndTheProcess(const Signals& signals) {
  const auto end = [](int signal) { _exit(128 + signal); };
  for (const int signal : {SIGTERM, SIGINT, SIGQUIT}) std::signal(signal, end);
  std::signal(SIGHUP, SIG_IGN);
  pthread_sigmask(SIG_UNBLOCK, &signals.awaited, nullptr);
}

// A person who starts the server reads a plain line, whatever the log's level;
// who collects JSON is not given anything else.
void SayWhyNot(const attention::server::ServerOptions& options,
               const std::string& reason) {
  if (options.log_format == "json") {
    spdlog::set_level(spdlog::level::critical);
    spdlog::critical(reason);
    return;
  }
  const bool read = attention::server::FlushLog();
  attention::server::WriteWhenRead(STDERR_FILENO,
                                   "attention-server: " + reason + "\n",
                                   std::chrono::seconds(read ? 1 : 0));
}

// Says where it listens to those who wait for that: the log may be off. Lines
// of the start are written by then. They find all of the file or none of it.
bool WriteReadyFile(const std::string& path, const std::string& address) {
  attention::server::FlushLog();
  const std::string part = path + ".part";
  std::ofstream file(part);
  file << address << '\n';
  file.close();
  if (file && std::rename(part.c_str(), path.c_str()) == 0) return true;
  ::unlink(part.c_str());
  return false;
}

// After the drain time, for what has been stopped to end: far less than a
// second each, unless a disk or a device hangs.
constexpr std::chrono::seconds kEndTime{10};

// The process's exit code.
int Serve(const attention::server::ServerOptions& options,
          const Signals& signals) {
  for (const std::string& line : attention::server::UnknownVariables(
           attention::server::ProcessVariables(),
           attention::server::OptionVariables())) {
    spdlog::warn(line);
  }
  // Debian builds Abseil with its own checks: gRPC's mutexes then look for
  // deadlocks, in a graph behind one lock, each time that they are taken.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  // Of a server before this one.
  if (!options.ready_file.empty()) ::unlink(options.ready_file.c_str());
  const auto server = attention::server::Server::Start(options);
  if (!server.ok()) {
    SayWhyNot(options, static_cast<std::string>(server.status().message()));
    return attention::server::IsWrongOption(server.status()) ? 2 : 1;
  }
  attention::server::NoteStart();
  Tell("start",
       absl::StrCat("attention-server ", attention::server::Version(), ": ",
                    (*server)->Summary()),
       {{"version", attention::server::Version()},
        {"address", (*server)->address()},
        {"http_address", (*server)->http_address()}});
  if (!options.ready_file.empty() &&
      !WriteReadyFile(options.ready_file, (*server)->address())) {
    SayWhyNot(options, absl::StrCat("--ready-file: '", options.ready_file,
                                    "' cannot be written"));
    // At once: nobody knows of this server, and ~Server() would drain it.
    attention::server::FlushLog();
    if (!options.grpc_unix_socket.empty()) {
      ::unlink(options.grpc_unix_socket.c_str());
    }
    _exit(1);
  }
  const std::string name =
      absl::StrCat("SIG", sigabbrev_np(WaitForEnd(**server, signals)));
  Tell("drain",
       absl::StrCat(name, ": draining, for at most ",
                    options.drain_time.count(), " ms"),
       {{"signal", name}});
  LetSignalsEndTheProcess(signals);
  attention::server::EndAfter(options.drain_delay + options.drain_time +
                              kEndTime);
  const bool quiet = (*server)->Drain();
  Tell("stop",
       quiet ? "stopped, every request was answered"
             : "stopped, requests were cancelled at the drain time's end",
       {});
  attention::server::TellOfRefusalsLeftOut();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const Signals signals = BlockSignals();
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const auto flags = attention::server::ParseFlags(arguments);
  if (flags.exit) {
    std::fputs(flags.exit->text.c_str(),
               flags.exit->code == 0 ? stdout : stderr);
    return flags.exit->code;
  }
  attention::server::SayLastWords(flags.options.log_format);
  attention::server::SetUpLog(flags.options.log_level,
                              flags.options.log_format);
  const int code = Serve(flags.options, signals);
  if (!attention::server::FlushLog()) _exit(code);
  return code;
}
