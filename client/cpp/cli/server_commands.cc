#include "client/cpp/cli/server_commands.h"

#include <iostream>
#include <memory>

#include "absl/strings/str_cat.h"
#include "client/cpp/cli/failure.h"
#include "client/cpp/cli/format.h"
#include "client/cpp/cli/json_output.h"
#include "client/cpp/cli/sequence_report.h"

namespace attention::cli {
namespace {

const char* HealthName(client::Health health) {
  switch (health) {
    case client::Health::kServing:
      return "SERVING";
    case client::Health::kNotServing:
      return "NOT_SERVING";
    case client::Health::kUnknown:
      return "UNKNOWN";
  }
  return "UNKNOWN";
}

int RunHealth(const Globals& globals, bool json) {
  absl::StatusOr<client::Client> client = Connect(globals);
  if (!client.ok()) return Report(client.status());
  const absl::StatusOr<client::Health> health = client->CheckHealth();
  if (!health.ok()) return Report(CallError(health.status(), globals.server));
  if (json) {
    PrintJson({{"server", globals.server}, {"status", HealthName(*health)}});
  } else {
    std::cout << HealthName(*health) << "\n";
  }
  return *health == client::Health::kServing ? kExitSuccess : kExitFailure;
}

nlohmann::ordered_json ToJson(const std::string& server,
                              const client::ServerInfo& info) {
  nlohmann::ordered_json backends = nlohmann::ordered_json::array();
  for (const client::BackendInfo& backend : info.backends) {
    nlohmann::ordered_json cost;  // null: not measured
    if (backend.cost) {
      cost = {{"of_problem", backend.cost->of_problem},
              {"of_multiply_add", backend.cost->of_multiply_add},
              {"of_byte", backend.cost->of_byte}};
    }
    backends.push_back({{"name", backend.name},
                        {"instruction_set", backend.instruction_set},
                        {"experimental", backend.experimental},
                        {"broken", backend.broken},
                        {"cost", cost}});
  }
  nlohmann::ordered_json unused_backends = nlohmann::ordered_json::array();
  for (const client::UnusedBackendInfo& unused : info.unused_backends) {
    unused_backends.push_back(
        {{"name", unused.name}, {"reason", unused.reason}});
  }
  nlohmann::ordered_json devices = nlohmann::ordered_json::array();
  for (const client::DeviceInfo& device : info.devices) {
    devices.push_back(
        {{"name", device.name}, {"memory_bytes", device.memory_bytes}});
  }
  nlohmann::ordered_json store;  // null: there is none
  if (const auto& sequences = info.sequence_store) {
    nlohmann::ordered_json idle_limit;  // null: none
    if (sequences->idle_limit) idle_limit = sequences->idle_limit->count();
    store = {{"memory_limit", sequences->memory_limit},
             {"held_bytes", sequences->held_bytes},
             {"sequences", sequences->sequences},
             {"idle_limit_ms", idle_limit},
             {"incarnation", absl::StrCat(sequences->incarnation)}};
  }
  return {
      {"server", server},
      {"version", info.version},
      {"backends", backends},
      {"unused_backends", unused_backends},
      {"devices", devices},
      {"worker_threads", info.worker_threads},
      {"limits",
       {{"max_request_bytes", info.max_request_bytes},
        {"max_response_bytes", info.max_response_bytes},
        {"max_requests_in_flight", info.max_requests_in_flight},
        {"max_bytes_in_flight", info.max_bytes_in_flight},
        {"max_stream_requests_in_flight", info.max_stream_requests_in_flight}}},
      {"sequence_store", store}};
}

std::string ToText(const std::string& server, const client::ServerInfo& info) {
  std::string text =
      Line("server", absl::StrCat(server, ", version ", info.version));
  for (const client::BackendInfo& backend : info.backends) {
    absl::StrAppend(
        &text,
        Line("backend",
             absl::StrCat(backend.name, ", instruction set ",
                          backend.instruction_set,
                          backend.experimental ? ", experimental" : "")));
    if (!backend.broken.empty()) {
      absl::StrAppend(&text,
                      Line("", absl::StrCat("broken: ", backend.broken)));
    }
    if (backend.cost) {
      absl::StrAppend(
          &text,
          Line("", absl::StrCat(
                       "cost: ", backend.cost->of_problem, " ns a problem, ",
                       backend.cost->of_multiply_add, " ns a multiply-add, ",
                       backend.cost->of_byte, " ns a byte")));
    }
  }
  for (const client::UnusedBackendInfo& unused : info.unused_backends) {
    absl::StrAppend(&text, Line("not used", absl::StrCat(unused.name, ": ",
                                                         unused.reason)));
  }
  for (const client::DeviceInfo& device : info.devices) {
    absl::StrAppend(
        &text, Line("device", absl::StrCat(device.name, ", ",
                                           FormatBytes(device.memory_bytes),
                                           " of memory")));
  }
  absl::StrAppend(
      &text,
      Line("threads", absl::StrCat(info.worker_threads, " that compute")),
      Line("limits",
           absl::StrCat(FormatBytes(info.max_request_bytes), " per request, ",
                        FormatBytes(info.max_response_bytes), " per reply")),
      Line("", absl::StrCat(info.max_requests_in_flight,
                            " requests at once, holding ",
                            FormatBytes(info.max_bytes_in_flight))),
      Line("", absl::StrCat(info.max_stream_requests_in_flight,
                            " requests at once per stream")));
  if (const auto& sequences = info.sequence_store) {
    absl::StrAppend(
        &text,
        Line("sequences",
             absl::StrCat(sequences->sequences, " of this caller, holding ",
                          FormatBytes(sequences->held_bytes), " of ",
                          FormatBytes(sequences->memory_limit))),
        Line("", sequences->idle_limit
                     ? absl::StrCat("each goes when it was unused for ",
                                    FormatAge(*sequences->idle_limit))
                     : "each may be unused for ever"));
  }
  return text;
}

int RunInfo(const Globals& globals, bool json) {
  absl::StatusOr<client::Client> client = Connect(globals);
  if (!client.ok()) return Report(client.status());
  const absl::StatusOr<client::ServerInfo> info = client->GetServerInfo();
  if (!info.ok()) return Report(CallError(info.status(), globals.server));
  if (json) {
    PrintJson(ToJson(globals.server, *info));
  } else {
    std::cout << ToText(globals.server, *info);
  }
  return kExitSuccess;
}

}  // namespace

void AddServerCommands(CLI::App& app, const Globals& globals, int& exit_code) {
  auto add = [&](const char* name, const char* description,
                 int (*run)(const Globals&, bool)) {
    CLI::App* command = app.add_subcommand(name, description);
    command->fallthrough();  // so that --server may come after the command
    auto json = std::make_shared<bool>(false);
    command->add_flag("--json", *json, "Print JSON");
    command->callback(
        [&globals, &exit_code, json, run] { exit_code = run(globals, *json); });
  };
  add("health", "Is the server ready? The exit code is 0 for SERVING alone",
      RunHealth);
  add("info", "The server's version, backends, devices, threads and limits",
      RunInfo);
}

}  // namespace attention::cli
