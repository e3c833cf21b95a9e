// attention-server: see --help.
#include <grpc/grpc.h>
#include <pthread.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server/environment.h"
#include "server/flags.h"
#include "server/last_words.h"
#include "server/server.h"
#include "server/telemetry/log.h"
#include "server/telemetry/log_event.h"
#include "server/telemetry/log_sink.h"
#include "server/telemetry/request_facts.h"
#include "server/version.h"

namespace {

// SIGTERM and SIGINT are waited for and not handled: they are blocked before
// any thread starts, so that every thread inherits it.
sigset_t BlockStopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  // A log that nobody reads any more must not end the server.
  std::signal(SIGPIPE, SIG_IGN);
  return signals;
}

// From here on a signal ends the process at once. It is handled, because the
// kernel drops a signal that process 1 of a container does not handle.
void LetSignalsEndTheProcess(const sigset_t& signals) {
  const auto end = [](int signal) { _exit(128 + signal); };
  std::signal(SIGTERM, end);
  std::signal(SIGINT, end);
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
}

// A person who starts the server reads a plain line, whatever the log's level;
// who collects JSON is not given anything else.
void SayWhyNot(const attention::server::ServerOptions& options,
               const std::string& reason) {
  if (options.log_format == "json") {
    spdlog::set_level(spdlog::level::critical);
    spdlog::critical("{}", reason);
    return;
  }
  const bool read = attention::server::FlushLog();
  attention::server::WriteWhenRead(STDERR_FILENO,
                                   "attention-server: " + reason + "\n",
                                   std::chrono::seconds(read ? 1 : 0));
}

// A line at info, with fields where the log has them.
void Tell(absl::string_view event, absl::string_view message,
          const std::vector<attention::server::LogField>& fields) {
  if (attention::server::LogHasFields()) {
    attention::server::LogEvent(spdlog::level::info, event, message, fields);
  } else {
    spdlog::info("{}", static_cast<std::string>(message));
  }
}

// The process's exit code.
int Serve(const attention::server::ServerOptions& options,
          const sigset_t& signals) {
  for (const std::string& line : attention::server::UnknownVariables(
           attention::server::ProcessVariables(),
           attention::server::OptionVariables())) {
    spdlog::warn("{}", line);
  }
  // For ever: what ends gRPC 1.51 waits for up to 10 s where a socket was full,
  // long after the last connection has gone.
  grpc_init();
  const auto server = attention::server::Server::Start(options);
  if (!server.ok()) {
    SayWhyNot(options, static_cast<std::string>(server.status().message()));
    return 1;
  }
  attention::server::NoteStart();
  Tell("start",
       absl::StrCat("attention-server ", attention::server::Version(), ": ",
                    (*server)->Summary()),
       {{"version", attention::server::Version()},
        {"address", (*server)->address()},
        {"http_address", (*server)->http_address()}});
  int signal = 0;
  sigwait(&signals, &signal);
  const char* name = signal == SIGINT ? "SIGINT" : "SIGTERM";
  Tell("drain",
       absl::StrCat(name, ": draining, for at most ",
                    options.drain_time.count(), " ms"),
       {{"signal", name}});
  LetSignalsEndTheProcess(signals);
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
  const sigset_t signals = BlockStopSignals();
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
