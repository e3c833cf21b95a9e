// attention-load: makes calls of an attention server and says what they took;
// or does the same to what no server can be faster than. See --help.
#include <malloc.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <string>

#include "absl/strings/str_format.h"
#include "benchmarks/load/api.h"
#include "benchmarks/load/floors.h"
#include "benchmarks/load/load.h"
#include "client/cpp/cli/security_flags.h"

namespace attention::bench {
namespace {

constexpr char kFooter[] = R"(Examples:
  attention-load attend --shape 8,16,128,64
  attention-load attend --server unix:/run/attention.sock --stream --in-flight 32
  attention-load attend --rate 500 --in-flight 64
benchmarks/serve starts everything and compares.)";

struct Arguments {
  LoadOptions load;
  cli::SecurityFlags security;
  LoadShape shape;
  std::vector<int64_t> extents = {2, 1, 4, 8};
  std::string api = "native";
  bool shared_memory = false;
  std::string folder;
  bool json = false;
};

std::string Time(double microseconds) {
  return microseconds < 1000 ? absl::StrFormat("%.1f us", microseconds)
                             : absl::StrFormat("%.3f ms", microseconds / 1000);
}

void Print(const nlohmann::json& result) {
  std::cout << absl::StrFormat(
      "%d calls, %d errors, %.1f calls/s, %.1f MiB/s\n",
      result["calls"].get<int64_t>(), result["errors"].get<int64_t>(),
      result["calls_per_second"].get<double>(),
      result["bytes_per_second"].get<double>() / (1 << 20));
  for (const auto& [code, count] : result["errors_by_code"].items()) {
    std::cout << absl::StrFormat("%13s %d\n", code, count.get<int64_t>());
  }
  for (const char* what :
       {"latency_us", "transport_us", "compute_us", "queue_us"}) {
    const auto& times = result[what];
    std::cout << absl::StrFormat(
        "%-13s p50 %-11s p90 %-11s p99 %s\n",
        std::string(what).substr(0, std::string(what).size() - 3),
        Time(times["p50"].get<double>()), Time(times["p90"].get<double>()),
        Time(times["p99"].get<double>()));
  }
}

int Finish(const absl::StatusOr<nlohmann::json>& result, bool json) {
  if (!result.ok()) {
    std::cerr << "attention-load: " << result.status() << "\n";
    return 1;
  }
  if (json) {
    std::cout << *result << '\n';
  } else {
    Print(*result);
  }
  return 0;
}

int RunFloorServer(const Arguments& arguments) {
  const auto server = FloorServer::Start(arguments.folder);
  if (!server.ok()) return Finish(server.status(), false);
  std::cout << (*server)->Addresses() << '\n' << std::flush;
  std::string line;
  while (std::getline(std::cin, line)) {
  }
  return 0;
}

int RunCalls(Arguments arguments, bool echo) {
  if (arguments.shared_memory && arguments.api == "native") {
    std::cerr << "attention-load: --shared-memory needs --api inference\n";
    return 2;
  }
  client::ClientOptions& server = arguments.load.server;
  absl::Status reachable = cli::ApplySecurityFlags(arguments.security, server);
  if (reachable.ok()) {
    reachable = client::Client::Create(server).status();  // checks them all
  }
  if (!reachable.ok()) return Finish(reachable, false);
  arguments.shape.batch = arguments.extents[0];
  arguments.shape.heads = arguments.extents[1];
  arguments.shape.length = arguments.extents[2];
  arguments.shape.width = arguments.extents[3];
  const auto api =
      arguments.api == "native"
          ? MakeNativeApi(arguments.shape)
          : MakeInferenceApi(arguments.shape, arguments.shared_memory
                                                  ? std::optional(server)
                                                  : std::nullopt);
  if (!api.ok()) return Finish(api.status(), false);
  return Finish(
      (echo ? EchoLoad : RunLoad)(arguments.load, arguments.shape, **api),
      arguments.json);
}

void AddTimes(CLI::App& command, Arguments& arguments) {
  command.add_option("--seconds", arguments.load.seconds, "to measure")
      ->capture_default_str();
  command
      .add_option("--warm-up", arguments.load.warm_up_seconds, "seconds before")
      ->capture_default_str();
  command.add_flag("--json", arguments.json, "print one line of JSON");
}

void AddCalls(CLI::App& command, Arguments& arguments) {
  command
      .add_option("--server", arguments.load.server.target,
                  "HOST:PORT or unix:PATH")
      ->capture_default_str();
  cli::AddSecurityFlags(command, arguments.security);
  command
      .add_option("--shape", arguments.extents,
                  "B,H,L,D of query, key and value")
      ->delimiter(',')
      ->expected(4)
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command.add_option("--dtype", arguments.shape.type)
      ->check(CLI::IsMember({"FP32", "FP16", "BF16"}))
      ->capture_default_str();
  command
      .add_option("--in-flight", arguments.load.in_flight,
                  "calls at a time; with --rate: at most")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  AddTimes(command, arguments);
}

// Without it, glibc gives the memory of every large message back and takes it
// again: the measurement would be one of page faults on our side.
void KeepFreedMemory() {
  mallopt(M_TRIM_THRESHOLD, 512 << 20);
  mallopt(M_MMAP_THRESHOLD, 512 << 20);
}

int Main(int argc, char** argv) {
  KeepFreedMemory();
  CLI::App app{"Makes calls of an attention server and says what they took."};
  app.footer(kFooter);
  app.require_subcommand(1);
  Arguments arguments;
  int64_t send = 0;
  int64_t receive = 0;
  CLI::App* attend = app.add_subcommand("attend", "Calls that compute");
  AddCalls(*attend, arguments);
  attend->add_flag("--stream", arguments.load.stream,
                   "one stream in place of unary calls");
  attend
      ->add_option("--additive", arguments.shape.hidden,
                   "additive scoring of this hidden width, with --api native: "
                   "much to compute in few bytes")
      ->check(CLI::PositiveNumber);
  attend->add_option("--rate", arguments.load.rate,
                     "calls per second, begun when they are due; latency "
                     "counts from then");
  attend->add_option("--timeout", arguments.load.timeout_seconds,
                     "seconds that a unary call may take; 0: as long as it "
                     "likes");
  attend
      ->add_option("--api", arguments.api,
                   "attention.v1 or the Open Inference Protocol")
      ->check(CLI::IsMember({"native", "inference"}))
      ->capture_default_str();
  attend->add_flag(
      "--shared-memory", arguments.shared_memory,
      "tensors in shared memory: with --api inference, of a server "
      "with --allow-shared-memory");
  CLI::App* echo = app.add_subcommand(
      "echo", "Unary calls of the floor server, which does nothing");
  AddCalls(*echo, arguments);
  CLI::App* ping = app.add_subcommand("ping", "Bytes, without gRPC");
  ping->add_option("--server", arguments.load.server.target,
                   "tcp:127.0.0.1:PORT or unix:PATH of the floor server")
      ->required();
  ping->add_option("--send", send, "bytes there")->required();
  ping->add_option("--receive", receive, "bytes back")->required();
  AddTimes(*ping, arguments);
  CLI::App* floor = app.add_subcommand(
      "floor-server",
      "Answers `ping` and `echo` until standard input ends; prints where");
  floor->add_option("--folder", arguments.folder, "for its sockets")
      ->required()
      ->check(CLI::ExistingDirectory);
  CLI11_PARSE(app, argc, argv);
  if (*floor) return RunFloorServer(arguments);
  if (*ping) {
    return Finish(Ping(arguments.load.server.target, send, receive,
                       arguments.load.warm_up_seconds, arguments.load.seconds),
                  arguments.json);
  }
  return RunCalls(arguments, static_cast<bool>(*echo));
}

}  // namespace
}  // namespace attention::bench

// NOLINTNEXTLINE(bugprone-exception-escape): ends the program, which is right
int main(int argc, char** argv) { return attention::bench::Main(argc, argv); }
