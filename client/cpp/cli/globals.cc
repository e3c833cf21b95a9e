#include "client/cpp/cli/globals.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "client/cpp/cli/failure.h"
#include "client/cpp/cli/numbers.h"
#include "core/nearest_name.h"

namespace attention::cli {
namespace {

constexpr size_t kMostMisspelt = 2;  // characters
constexpr double kLongestDeadlineSeconds = 365.0 * 24 * 3600;

// What the library calls by its options' names, by those of flags.
std::string InFlags(absl::string_view message) {
  constexpr std::pair<absl::string_view, absl::string_view> kNames[] = {
      {"target:", "--server:"},
      {"ca_file:", "--tls-ca:"},
      {"certificate_file:", "--tls-certificate:"},
      {"key_file:", "--tls-key:"},
      {"tls: certificate_file and key_file", "--tls-certificate and --tls-key"},
      {"token:", "--token-file: the token"}};
  for (const auto& [option, flag] : kNames) {
    if (absl::ConsumePrefix(&message, option)) {
      return absl::StrCat(flag, message);
    }
  }
  return absl::StrCat(message);
}

int TerminalWidth() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) {
    return 100;
  }
  return std::clamp(static_cast<int>(size.ws_col), 40, 100);
}

}  // namespace

void AddGlobalFlags(CLI::App& app, Globals& globals) {
  app.add_option("--server", globals.server,
                 "Where the server listens: HOST:PORT, or unix:PATH for a "
                 "socket on this machine")
      ->envname("ATTENTION_SERVER")
      ->type_name("HOST:PORT")
      ->capture_default_str();
  app.add_option("--deadline", globals.deadline_seconds,
                 "How long a call may take, retries included; 0 = no limit")
      ->type_name("SECONDS")
      ->check(InRange(0, kLongestDeadlineSeconds))
      ->capture_default_str();
  app.add_option("--color", globals.color,
                 "Colours in heatmaps: auto, always or never; NO_COLOR is "
                 "respected")
      ->type_name("WHEN")
      ->check(CLI::IsMember({"auto", "always", "never"}).description(""))
      ->capture_default_str();
  AddSecurityFlags(app, globals.security);
}

std::vector<std::string> MisspeltVariables(const CLI::App& app,
                                           char** environment) {
  std::vector<std::string> lines;
  for (const CLI::Option* option : app.get_options()) {
    const std::string known = option->get_envname();
    if (known.empty()) continue;
    for (char** entry = environment; *entry != nullptr; ++entry) {
      const std::string variable = *entry;
      const std::string name = variable.substr(0, variable.find('='));
      const size_t distance = EditDistance(name, known);
      if (distance == 0 || distance > kMostMisspelt) continue;
      lines.push_back(absl::StrCat("environment: ", name,
                                   " is not read (nearest: ", known, ")"));
    }
  }
  return lines;
}

absl::StatusOr<client::Client> Connect(const Globals& globals) {
  // A value of ATTENTION_SERVER that Python knows, and no host.
  if (globals.server == "local") {
    return UsageError(
        "--server (ATTENTION_SERVER): local is the engine in a Python process "
        "(AttentionBackend); expected HOST:PORT or unix:PATH, where "
        "attention-server listens");
  }
  client::ClientOptions options;
  options.target = globals.server;
  // Rounded up: 0 would mean no deadline.
  options.deadline = std::chrono::milliseconds(
      static_cast<int64_t>(std::ceil(globals.deadline_seconds * 1000)));
  if (absl::Status status = ApplySecurityFlags(globals.security, options);
      !status.ok()) {
    return UsageError(status.message());
  }
  absl::StatusOr<client::Client> client = client::Client::Create(options);
  if (!client.ok()) return UsageError(InFlags(client.status().message()));
  return client;
}

HeatmapStyle TerminalStyle(const Globals& globals) {
  const ColorMode mode = globals.color == "always"  ? ColorMode::kAlways
                         : globals.color == "never" ? ColorMode::kNever
                                                    : ColorMode::kAuto;
  HeatmapStyle style;
  style.depth = ChooseDepth(mode, isatty(STDOUT_FILENO) != 0,
                            [](const char* name) { return std::getenv(name); });
  style.max_width = TerminalWidth();
  return style;
}

}  // namespace attention::cli
