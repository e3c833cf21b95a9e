#include "server/options/flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <type_traits>
#include <utility>
#include <variant>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "server/base/version.h"
#include "server/options/config_file.h"
#include "server/options/flag_errors.h"
#include "server/options/option_checks.h"
#include "server/options/option_table.h"

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
    "SIGTERM, SIGINT and SIGQUIT drain: running requests finish within "
    "--drain-time,\n"
    "then the exit code is 0. A second one ends the process at once. SIGHUP "
    "reads\n"
    "callers, certificates and models again.";

// "ATTENTION_GRPC_PORT" for "--grpc-port".
std::string VariableOf(absl::string_view flag) {
  return absl::StrCat("ATTENTION_", absl::AsciiStrToUpper(absl::StrReplaceAll(
                                        flag.substr(2), {{"-", "_"}})));
}

// Help shows the environment's name, but CLI11 does not read it by itself: it
// would let the config file win over it.
//
// An empty value is a shell's variable that is not set, more often than not:
// --callers-file "" would serve everybody. Of "--ready-file= --callers-file=a",
// CLI11 takes the second for the first one's value.
void Describe(CLI::Option* option, const std::string& flag,
              const std::string& help, const std::string& group) {
  option->description(absl::StrCat(help, " [", VariableOf(flag), "]"))
      ->group(group)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
      ->check([](const std::string& value) {
        const bool missing = value.empty() || absl::StartsWith(value, "--");
        return std::string(missing ? "its value is missing" : "");
      });
}

// Reads values alone; their bounds are CheckOptions().
template <typename Kind, typename Value>
CLI::Option* Add(const OptionRow& row, const Kind& kind, Value& value,
                 CLI::App& app) {
  const auto read = [&](const CLI::results_t& given) {
    for (const std::string& text : given) {
      if (Kind::Parse(text, value)) continue;
      throw CLI::ValidationError(
          row.flag,
          absl::StrCat("'", text, "' (expected ", Kind::kExpected, ")"));
    }
    return true;
  };
  CLI::Option* option = app.add_option(row.flag, CLI::callback_t(read));
  if (std::is_same_v<Kind, SwitchOption>) option->expected(0);
  return option->type_name(kind.type)->default_str(Kind::Text(value));
}

std::vector<std::string> AllFlags() {
  std::vector<std::string> flags = {"--config"};
  for (const OptionRow& row : OptionTable()) flags.emplace_back(row.flag);
  return flags;
}

// The flags of the program, and those of the options.
void AddFlags(ServerOptions& options, CLI::App& app) {
  app.set_version_flag(
      "--version",
      absl::StrCat("attention-server ", Version(), "\nwith ", LinkedVersions()),
      "Print the version and exit");
  app.set_help_flag("-h,--help", "Print this help and exit");
  app.set_config("--config", "", "")->type_name("FILE");
  app.config_formatter(std::make_shared<ConfigFile>());
  Describe(app.get_config_ptr(), "--config", "Read options from FILE",
           "General");
  app.allow_extras();  // ParseFlags() says which
  app.allow_config_extras(CLI::config_extras_mode::error);
  app.footer(kFooter);
  for (const OptionRow& row : OptionTable()) {
    const auto add = [&](const auto& kind) {
      return Add(row, kind, options.*kind.member, app);
    };
    CLI::Option* option = std::visit(add, row.kind);
    Describe(option, row.flag, row.help, row.group);
    if (std::holds_alternative<ListOption>(row.kind)) {
      option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)->expected(1);
    }
  }
}

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
    const std::optional<std::string> value = environment(VariableOf(flag));
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
      return absl::StrCat(" (", VariableOf(flag), " in the environment)");
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
  CLI::App app(kDescription, "attention-server");
  AddFlags(parsed.options, app);
  const std::vector<std::string> flags = AllFlags();
  // A config file that CLI11 2.1.2 reads last must not win over the
  // environment, so the environment is turned into arguments: the file sets
  // what none has set.
  const std::vector<std::string> from_environment =
      FromEnvironment(flags, arguments, environment);
  const auto wrong = [&](absl::string_view message) {
    parsed.exit =
        WrongOption(absl::StrCat(message, Origin(message, from_environment)));
    return parsed;
  };
  std::vector<std::string> all = from_environment;
  all.insert(all.end(), arguments.begin(), arguments.end());
  std::reverse(all.begin(), all.end());  // the order that App::parse wants
  try {
    app.parse(std::move(all));
  } catch (const CLI::CallForHelp&) {
    parsed.exit = {0, app.help()};
    return parsed;
  } catch (const CLI::CallForVersion& version) {
    parsed.exit = {0, absl::StrCat(version.what(), "\n")};
    return parsed;
  } catch (const CLI::Error& error) {
    return wrong(Explain(error));
  }
  if (const auto unknown = app.remaining(); !unknown.empty()) {
    return wrong(ExplainUnknown(unknown.front(), flags));
  }
  if (const absl::Status status = CheckOptions(parsed.options); !status.ok()) {
    return wrong(status.message());
  }
  return parsed;
}

std::vector<std::string> OptionVariables() {
  std::vector<std::string> names;
  for (const std::string& flag : AllFlags()) names.push_back(VariableOf(flag));
  return names;
}

}  // namespace attention::server
