// attention-server: see --help.
#include <grpc/grpc.h>
#include <malloc.h>
#include <pthread.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "server/environment.h"
#include "server/flags.h"
#include "server/server.h"
#include "server/telemetry/log.h"
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

// Messages are read into blocks of some 64 KiB, which glibc gives back to the
// kernel as soon as a message has been read; the next one faults all of their
// pages in again. The tensors' own buffers have a pool for that
// (memory/buffer_pool.h).
void KeepFreedMemory() {
  // Keep what is free at the heap's end, up to this: the blocks of a request of
  // 12 MiB. More would be held twice, here and in the pool, when requests pile
  // up. It also keeps glibc from raising M_MMAP_THRESHOLD by itself, so that
  // blocks over 128 KiB still go back at once.
  mallopt(M_TRIM_THRESHOLD, 16 << 20);
  // An arena keeps what is free for itself. With glibc's eight for each
  // processor, what the threads of gRPC have read adds up: twice the memory.
  const unsigned processors = std::thread::hardware_concurrency();
  mallopt(M_ARENA_MAX, static_cast<int>(std::max(1U, processors / 4)));
}

// A person who starts the server reads a plain line, whatever the log's level;
// who collects JSON is not given anything else.
void SayWhyNot(const attention::server::ServerOptions& options,
               const std::string& reason) {
  if (options.log_format == "json") {
    spdlog::set_level(spdlog::level::critical);
    spdlog::critical("{}", reason);
  } else {
    std::fprintf(stderr, "attention-server: %s\n", reason.c_str());
  }
}

int Serve(const attention::server::ServerOptions& options,
          const sigset_t& signals) {
  attention::server::SetUpLog(options.log_level, options.log_format);
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
  spdlog::info("attention-server {}: {}", attention::server::Version(),
               (*server)->Summary());
  int signal = 0;
  sigwait(&signals, &signal);
  spdlog::info("{}: draining, for at most {} ms",
               signal == SIGINT ? "SIGINT" : "SIGTERM",
               options.drain_time.count());
  LetSignalsEndTheProcess(signals);
  const bool quiet = (*server)->Drain();
  spdlog::info(quiet ? "stopped, every request was answered"
                     : "stopped, requests were cancelled at the drain time's "
                       "end");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  KeepFreedMemory();
  const sigset_t signals = BlockStopSignals();
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const auto flags = attention::server::ParseFlags(arguments);
  if (flags.exit) {
    std::fputs(flags.exit->text.c_str(),
               flags.exit->code == 0 ? stdout : stderr);
    return flags.exit->code;
  }
  return Serve(flags.options, signals);
}
