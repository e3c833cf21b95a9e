#include "server/flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <deque>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "core/engine.h"
#include "server/flag_errors.h"
#include "server/flag_values.h"
#include "server/option_checks.h"
#include "server/version.h"

namespace attention::server {
namespace {

constexpr char kDescription[] =
    "attention-server computes attention for other programs, over gRPC.";

constexpr char kFooter[] =
    "Every option can also come from the environment (the name in brackets) "
    "or,\n"
    "as `grpc-port = 9000`, from the file that --config names. A flag wins "
    "over\n"
    "the environment, and the environment over the file.\n"
    "Sizes take a suffix (64MiB, 2GiB; powers of 1024), times a unit (500ms, "
    "30s,\n"
    "2min; seconds without one).\n"
    "\n"
    "Examples:\n"
    "  attention-server\n"
    "      serves on 127.0.0.1:8001, reachable from this machine alone\n"
    "  attention-server --grpc-address 0.0.0.0 --tls-certificate tls.crt "
    "--tls-key tls.key\n"
    "      serves every network that reaches this machine, encrypted\n"
    "  ATTENTION_MAX_REQUEST_BYTES=1GiB attention-server --worker-threads 8\n"
    "\n"
    "SIGTERM and SIGINT drain: running requests finish within --drain-time, "
    "then\n"
    "the exit code is 0. A second signal ends the process at once.";

std::string EnvironmentName(const std::string& flag) {
  return absl::StrCat("ATTENTION_", absl::AsciiStrToUpper(absl::StrReplaceAll(
                                        flag, {{"--", ""}, {"-", "_"}})));
}

// The options of the command line, bound to the struct that they fill; times
// come as seconds first.
struct Parser {
  explicit Parser(ServerOptions& target) : options(target) {
    app.set_version_flag("--version",
                         absl::StrCat("attention-server ", Version(), "\nwith ",
                                      LinkedVersions()),
                         "Print the version and exit");
    app.set_help_flag("-h,--help", "Print this help and exit");
    app.set_config("--config", "", "");
    Describe(app.get_config_ptr(), "--config", "FILE", "",
             "Read options from FILE", "General");
    app.allow_extras();  // ParseFlags() says which
    app.allow_config_extras(CLI::config_extras_mode::error);
    app.footer(kFooter);
    AddListening();
    AddEncryption();
    AddComputing();
    AddLimits();
    AddConnectionLimits();
    AddModels();
    AddTrust();
    AddLogging();
  }

  // Help shows the environment's name, but CLI11 does not read it by itself: it
  // would let the config file win over it.
  void Describe(CLI::Option* option, const std::string& flag,
                const std::string& type, const std::string& default_text,
                const std::string& help, const std::string& group) {
    option->type_name(type)
        ->description(absl::StrCat(help, " [", EnvironmentName(flag), "]"))
        ->group(group)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    if (!default_text.empty()) option->default_str(default_text);
    flags.push_back(flag);
  }

  template <typename T>
  CLI::Option* Add(const std::string& flag, T& value, const std::string& type,
                   const std::string& default_text, const std::string& help,
                   const std::string& group) {
    CLI::Option* option = app.add_option(flag, value);
    Describe(option, flag, type, default_text, help, group);
    return option;
  }

  template <typename Integer>
  void AddInteger(const std::string& flag, Integer& value,
                  const std::string& help, const std::string& group) {
    Add(flag, value, "INT", absl::StrCat(value), help, group)
        ->check(WholeNumber<Integer>());
  }

  void AddSize(const std::string& flag, int64_t& value,
               const std::string& default_text, const std::string& help) {
    Add(flag, value, "SIZE", default_text, help, "Limits")
        ->transform(SizeInBytes())
        ->check(WholeNumber<int64_t>());
  }

  // The flag alone, or --flag=true and --flag=false.
  void AddSwitch(const std::string& flag, bool& value, const std::string& help,
                 const std::string& group = "Trust") {
    CLI::Option* option = app.add_flag(flag, value);
    Describe(option, flag, "", value ? "true" : "false", help, group);
    option->check(TrueOrFalse());
  }

  void AddTime(const std::string& flag, std::chrono::milliseconds& value,
               const std::string& default_text, const std::string& help,
               const std::string& group) {
    const double seconds = static_cast<double>(value.count()) / 1000;
    times.push_back({flag, seconds, &value});
    Add(flag, times.back().seconds, "TIME", default_text, help, group)
        ->transform(TimeInSeconds());
  }

  // Fills the struct's times.
  absl::Status ConvertTimes() const {
    for (const Time& time : times) {
      // Compared as doubles first: the conversion of what does not fit is
      // undefined.
      const double milliseconds = std::round(time.seconds * 1000);
      if (!(std::abs(milliseconds) < 1e15)) {
        return absl::InvalidArgumentError(absl::StrCat(
            time.flag, ": ", time.seconds, "s (expected 0 to 24h)"));
      }
      *time.value =
          std::chrono::milliseconds(static_cast<int64_t>(milliseconds));
    }
    return absl::OkStatus();
  }

  void AddListening() {
    const std::string group = "Listening";
    Add("--grpc-address", options.grpc_address, "ADDRESS", options.grpc_address,
        "Where gRPC listens; loopback unless you say so", group);
    AddInteger("--grpc-port", options.grpc_port,
               "Its port, 0 to 65535; 0 picks a free one, which the log names",
               group);
    Add("--grpc-unix-socket", options.grpc_unix_socket, "PATH", "",
        "A Unix-domain socket to listen on as well, for callers on this "
        "machine that run as the same user (mode 0600)",
        group);
    AddSwitch(
        "--http", options.http,
        "Whether HTTP is served: health, metrics, inference; --http=false "
        "switches it off",
        group);
    Add("--http-address", options.http_address, "ADDRESS", options.http_address,
        "Where HTTP listens; loopback unless you say so", group);
    AddInteger("--http-port", options.http_port,
               "Its port, 0 to 65535; 0 picks a free one, which the log names",
               group);
    AddSwitch("--http-inference", options.http_inference,
              "Whether the Open Inference Protocol is served over HTTP too; "
              "--http-inference=false leaves health and metrics",
              group);
    AddTime("--drain-delay", options.drain_delay, "0s",
            "How long calls are still served after SIGTERM or SIGINT, while "
            "health says NOT_SERVING: time for callers and proxies to see it",
            group);
    AddTime("--drain-time", options.drain_time, "30s",
            "How long running requests may take to finish after that", group);
  }

  void AddEncryption() {
    const std::string group = "Encryption";
    Add("--tls-certificate", options.tls_certificate, "FILE", "",
        "This server's certificate and its issuers', in PEM: gRPC's port then "
        "takes TLS alone, HTTP's takes it too. Read again when it changes, as "
        "the next two",
        group);
    Add("--tls-key", options.tls_key, "FILE", "", "Its private key, in PEM",
        group);
    Add("--tls-client-ca", options.tls_client_ca, "FILE", "",
        "Who signs callers' certificates, in PEM: callers must then show one",
        group);
    AddSwitch("--insecure", options.insecure,
              "Plain text beyond loopback: for a network that nobody else "
              "reads, or behind a proxy that encrypts",
              group);
  }

  void AddComputing() {
    const std::string group = "Computing";
    AddInteger("--worker-threads", options.worker_threads,
               "Threads that compute; 0 means one per processor", group);
    Add("--backend", options.backend, "NAME", "auto",
        absl::StrCat("One of ", absl::StrJoin(BackendNames(), ", "),
                     "; auto takes the fastest that supports a request"),
        group);
    AddSize("--cuda-memory-limit", options.cuda_memory_limit, "0",
            "Memory of each GPU that the backend cuda takes; a request that "
            "needs more: RESOURCE_EXHAUSTED. 0 means 80 % of what is free");
  }

  void AddLimits() {
    AddSize("--max-request-bytes", options.max_request_bytes, "256MiB",
            "Largest request, 1KiB to 2147483647 bytes");
    AddSize(
        "--max-response-bytes", options.max_response_bytes, "256MiB",
        "Largest reply, likewise; a larger one is refused before computing");
    AddInteger("--max-requests-in-flight", options.max_requests_in_flight,
               "Requests queued or running; beyond it: RESOURCE_EXHAUSTED",
               "Limits");
    AddSize("--memory-limit", options.memory_limit, "0",
            "Memory, 16MiB or more: half of it for messages on their way in, "
            "half for requests with their working memory and replies; beyond "
            "it: RESOURCE_EXHAUSTED. 0 means 80 % of the container's or the "
            "machine's");
    AddInteger("--max-stream-requests-in-flight",
               options.max_stream_requests_in_flight,
               "Requests in flight on one stream; beyond it the stream is not "
               "read until a reply is out",
               "Limits");
    AddInteger("--max-dimension", options.max_dimension,
               "Longest dimension of query, keys and values; beyond it: "
               "RESOURCE_EXHAUSTED, as for the next three",
               "Limits");
    AddSize("--max-weights-bytes", options.max_weights_bytes, "1GiB",
            "Largest weights, in the reply or in shared memory");
    AddInteger("--max-requests-per-second", options.max_requests_per_second,
               "Requests of one caller in a second, for long; 0 means any",
               "Limits");
    AddSize("--max-bytes-per-second", options.max_bytes_per_second, "0",
            "Bytes of its requests with working memory and replies, likewise");
    AddTime("--max-compute-time", options.max_compute_time, "5min",
            "How long one request may compute; it is stopped then: "
            "RESOURCE_EXHAUSTED. 0 means for ever",
            "Limits");
  }

  void AddConnectionLimits() {
    const std::string group = "Limits";
    AddInteger("--max-connections", options.max_connections,
               "Connections at once; beyond it they are closed at once. 0 "
               "means as many as file descriptors allow, at most 8192",
               group);
    AddInteger("--max-connections-per-peer", options.max_connections_per_peer,
               "Likewise, of one address; 0 means half of --max-connections",
               group);
    AddInteger(
        "--max-streams-per-connection", options.max_streams_per_connection,
        "Calls open on one connection; callers hold back further ones", group);
    AddTime("--connection-idle-timeout", options.connection_idle_timeout,
            "15min", "A connection without calls is closed after it; 0 never",
            group);
    AddTime("--keepalive-time", options.keepalive_time, "60s",
            "After so long without a byte the caller is pinged; it has as "
            "long again to answer, at most 20s, before its connection is "
            "closed",
            group);
    AddTime("--max-connection-age", options.max_connection_age, "0s",
            "A connection is given up after it, which spreads callers over "
            "servers; its calls have --drain-time to finish; 0 never",
            group);
    AddTime("--reply-timeout", options.reply_timeout, "60s",
            "How long a caller may take to take a reply; then its call is "
            "ended",
            group);
  }

  void AddModels() {
    Add("--model-repository", options.model_repository, "DIR", "",
        "A directory of parameter sets, one folder for each: config.json with "
        "the scoring function and its options, parameters.safetensors with "
        "its weights. Requests then name the folder instead of sending them",
        "Models");
  }

  // What is off until a person says that every caller may do it.
  void AddTrust() {
    Add("--callers-file", options.callers_file, "FILE", "",
        "JSON: callers by their tokens and certificates, with what each may do "
        "and take; others are refused. Read again when it changes. Without it, "
        "everybody who reaches the server may call",
        "Trust");
    AddSwitch("--allow-shared-memory", options.allow_shared_memory,
              "Callers on this machine may register POSIX shared memory, and "
              "CUDA memory where the server computes on a GPU (the Open "
              "Inference Protocol's extensions), and leave tensors there "
              "instead of sending them. They can name any object in /dev/shm "
              "that the server's user may open, another program's too: for "
              "trusted callers");
    AddSwitch("--allow-model-control", options.allow_model_control,
              "Callers may have folders of --model-repository loaded again, "
              "and unload them for everybody");
  }

  void AddLogging() {
    const std::string group = "Logging";
    Add("--log-level", options.log_level, "LEVEL", "info",
        "trace, debug (a line per request), info, warn, error or off", group);
    Add("--log-format", options.log_format, "FORMAT", "text",
        "text for people, json (one object per line) for collectors", group);
  }

  struct Time {
    std::string flag;
    double seconds;
    std::chrono::milliseconds* value;
  };

  ServerOptions& options;
  std::deque<Time> times;  // whose elements stay where they are
  CLI::App app{kDescription, "attention-server"};
  std::vector<std::string> flags;
};

bool IsGiven(const std::string& flag,
             const std::vector<std::string>& arguments) {
  return absl::c_any_of(arguments, [&flag](const std::string& argument) {
    return argument == flag || absl::StartsWith(argument, flag + "=");
  });
}

// The flags that the environment sets and the arguments do not, each as
// "--flag=value".
std::vector<std::string> FromEnvironment(
    const std::vector<std::string>& flags,
    const std::vector<std::string>& arguments, const Environment& environment) {
  std::vector<std::string> set;
  for (const std::string& flag : flags) {
    const std::optional<std::string> value = environment(EnvironmentName(flag));
    if (value && !value->empty() && !IsGiven(flag, arguments)) {
      set.push_back(absl::StrCat(flag, "=", *value));
    }
  }
  return set;
}

// What a message about an option says more where its value did not come from
// the command line: it may have been set long ago and elsewhere.
std::string Origin(absl::string_view message,
                   const std::vector<std::string>& from_environment) {
  for (const std::string& set : from_environment) {
    const std::string flag = set.substr(0, set.find('='));
    if (absl::StartsWith(message, flag + ":")) {
      return absl::StrCat(" (", EnvironmentName(flag), " in the environment)");
    }
  }
  return "";
}

ParsedFlags::Exit WrongOption(absl::string_view message) {
  return {2, absl::StrCat("attention-server: ", message,
                          "\nRun attention-server --help for the options.\n")};
}

}  // namespace

std::optional<std::string> ProcessEnvironment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr) return std::nullopt;
  return value;
}

ParsedFlags ParseFlags(const std::vector<std::string>& arguments,
                       const Environment& environment) {
  ParsedFlags parsed;
  Parser parser(parsed.options);
  // A config file that CLI11 2.1.2 reads last must not win over the
  // environment, so the environment is turned into arguments: the file sets
  // what none has set.
  const std::vector<std::string> from_environment =
      FromEnvironment(parser.flags, arguments, environment);
  const auto wrong = [&](absl::string_view message) {
    parsed.exit =
        WrongOption(absl::StrCat(message, Origin(message, from_environment)));
    return parsed;
  };
  std::vector<std::string> all = from_environment;
  all.insert(all.end(), arguments.begin(), arguments.end());
  std::reverse(all.begin(), all.end());  // the order that App::parse wants
  try {
    parser.app.parse(std::move(all));
  } catch (const CLI::CallForHelp&) {
    parsed.exit = {0, parser.app.help()};
    return parsed;
  } catch (const CLI::CallForVersion& version) {
    parsed.exit = {0, absl::StrCat(version.what(), "\n")};
    return parsed;
  } catch (const CLI::Error& error) {
    return wrong(Explain(error, parser.flags));
  }
  if (const auto unknown = parser.app.remaining(); !unknown.empty()) {
    return wrong(ExplainUnknown(unknown.front(), parser.flags));
  }
  if (const absl::Status status = parser.ConvertTimes(); !status.ok()) {
    return wrong(status.message());
  }
  if (const absl::Status status = CheckOptions(parsed.options); !status.ok()) {
    return wrong(status.message());
  }
  return parsed;
}

std::vector<std::string> OptionVariables() {
  ServerOptions unused;
  std::vector<std::string> names;
  for (const std::string& flag : Parser(unused).flags) {
    names.push_back(EnvironmentName(flag));
  }
  return names;
}

}  // namespace attention::server
