// attention-client: its commands but `attend`, and mistakes on its command
// line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "client/cpp/cli/globals.h"
#include "core/backend.h"
#include "server/options/environment.h"
#include "server/options/flags.h"
#include "server/request/option_fields.h"
#include "server/request/tensor_fields.h"
#include "server/server.h"
#include "tests/client/held_server.h"
#include "tests/client/program_fixture.h"

namespace attention {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

using ProgramTest = ProgramFixture;

// What the server's tables have, the command has under the same name.
TEST(ClientHelp, HasEveryFieldOfARequest) {
  const std::string help = RunClient({"attend", "--help"}).output;
  const auto flag = [](absl::string_view name) {
    return absl::StrCat(" --", absl::StrReplaceAll(name, {{"_", "-"}}));
  };
  for (const server::TensorField& tensor : server::TensorFields()) {
    EXPECT_THAT(help, HasSubstr(flag(tensor.name)));
  }
  for (const server::OptionField& option : server::OptionFields()) {
    EXPECT_THAT(help, HasSubstr(flag(option.name)));
  }
}

TEST_F(ProgramTest, HealthSaysServingAndEndsWithZero) {
  const ProgramResult result = RunHere({"health"});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_EQ(result.output, "SERVING\n");
}

TEST_F(ProgramTest, ReachesAServerThroughItsUnixSocket) {
  server::ServerOptions options;
  options.grpc_port = 0;
  options.http = false;
  options.grpc_unix_socket = folder_.path() + "/s";
  const auto server = server::Server::Start(options);
  ASSERT_TRUE(server.ok()) << server.status();
  const ProgramResult result =
      RunClient({"health", "--server", "unix:" + options.grpc_unix_socket});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_EQ(result.output, "SERVING\n");
}

TEST_F(ProgramTest, HealthOfNoServerEndsWithOneAndSaysWhatToDo) {
  const std::string address = server_->address();
  server_.reset();
  const ProgramResult result = RunClient({"health", "--server", address});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.output, IsEmpty());
  EXPECT_THAT(
      result.errors,
      AllOf(StartsWith("attention-client: no server answers at " + address),
            HasSubstr("--server HOST:PORT")));
}

TEST_F(ProgramTest, InfoListsVersionBackendsAndLimits) {
  const ProgramResult result = RunHere({"info"});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_THAT(result.output,
              AllOf(HasSubstr("version "), HasSubstr(DefaultBackend()),
                    HasSubstr("reference"), HasSubstr("256 MiB per request")));
}

// A backend with two accelerators, which computes nothing.
class WithDevices final : public Backend {
 public:
  absl::string_view name() const override { return "other"; }
  std::string instruction_set() const override { return "none"; }
  std::vector<BackendDevice> devices() const override {
    return {{"Card A", 80LL << 30}, {"Card B", 1536LL << 20}};
  }
  absl::Status Supports(const ValidatedProblem&) const override {
    return absl::UnimplementedError("nothing");
  }
  void Run(absl::Span<AttentionJob>, const RunContext&) const override {}
};

TEST(InfoTest, ListsTheDevicesWithTheirMemory) {
  server::ServerOptions options;
  options.grpc_port = 0;
  options.http = false;
  server::TestHooks hooks;
  hooks.more_backends.push_back(std::make_unique<WithDevices>());
  const auto server = server::Server::Start(options, std::move(hooks));
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string address = (*server)->address();
  EXPECT_THAT(RunClient({"info", "--server", address}).output,
              AllOf(HasSubstr("Card A, 80 GiB of memory"),
                    HasSubstr("Card B, 1.50 GiB of memory")));
  EXPECT_THAT(RunClient({"info", "--json", "--server", address}).output,
              AllOf(HasSubstr("\"name\": \"Card A\""),
                    HasSubstr("\"memory_bytes\": 85899345920")));
}

TEST_F(ProgramTest, AMisspeltVariableIsNotedAndThoseOfTheServerAreNot) {
  const std::vector<std::string> health = {"health", "--server",
                                           server_->address()};
  EXPECT_EQ(RunClient(health, {{"ATTENTION_SERVRE", "a:1"}}).errors,
            "note: environment: ATTENTION_SERVRE is not read (nearest: "
            "ATTENTION_SERVER)\n");
  EXPECT_EQ(RunClient(health, {{"ATTENTION_GRPC_PORT", "9000"}}).errors, "");
}

// Each side leaves the other's variables alone.
TEST(VariablesTest, TheServerKnowsThoseOfTheClient) {
  CLI::App app;
  cli::Globals globals;
  cli::AddGlobalFlags(app, globals);
  std::vector<std::string> variables;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_envname().empty()) continue;
    variables.push_back(option->get_envname() + "=x");
  }
  EXPECT_THAT(variables, Not(IsEmpty()));
  EXPECT_THAT(server::UnknownVariables(variables, server::OptionVariables()),
              IsEmpty());
}

TEST_F(ProgramTest, InfoAsJsonHasPlainNumbers) {
  const ProgramResult result = RunHere({"info", "--json"});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_THAT(result.output, HasSubstr("\"max_request_bytes\": 268435456"));
}

TEST_F(ProgramTest, WhatCannotBeWrittenEndsWithOne) {
  const ProgramResult result =
      RunProgram({"/bin/sh", "-c", "exec \"$0\" info --json >/dev/full",
                  ATTENTION_CLIENT_PROGRAM},
                 {{"ATTENTION_SERVER", server_->address()}});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.errors,
            "attention-client: standard output: cannot be written\n");
}

TEST_F(ProgramTest, DemoPrintsTheTextbooksNumbersTwice) {
  const ProgramResult result = RunHere({"demo"});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  const size_t second = result.output.find("2. Additive");
  ASSERT_NE(second, std::string::npos);
  for (const std::string& part :
       {result.output.substr(0, second), result.output.substr(second)}) {
    EXPECT_THAT(part,
                AllOf(HasSubstr("[2, 3, 4, 5]"), HasSubstr("[10, 11, 12, 13]"),
                      HasSubstr("[2, 1, 4] FP32"),
                      HasSubstr("batch entry 1 ▒0.17 ▒0.17")));
  }
}

TEST_F(ProgramTest, ColourIsThereWhereItIsAskedFor) {
  const std::vector<std::string> demo = {"demo", "--color", "always"};
  EXPECT_THAT(RunHere(demo).output, HasSubstr("\x1b[38;5;"));
  EXPECT_THAT(RunHere({"demo"}).output, Not(HasSubstr("\x1b")));
}

// Mistakes on the command line: no server is needed to find them.
struct Mistake {
  const char* name;
  std::vector<std::string> arguments;
  int exit_code;
  const char* message;
};

class MistakeTest : public ::testing::TestWithParam<Mistake> {};

TEST_P(MistakeTest, IsOneLineThatSaysWhatToDo) {
  const ProgramResult result = RunClient(GetParam().arguments);
  EXPECT_EQ(result.exit_code, GetParam().exit_code);
  EXPECT_THAT(result.errors, AllOf(StartsWith("attention-client: "),
                                   HasSubstr(GetParam().message)));
  EXPECT_EQ(std::count(result.errors.begin(), result.errors.end(), '\n'), 1)
      << result.errors;
  EXPECT_THAT(result.output, IsEmpty());
}

const std::string kMiniLm = ATTENTION_TEST_DATA "/minilm_layer3.safetensors";

INSTANTIATE_TEST_SUITE_P(
    All, MistakeTest,
    ::testing::Values(
        Mistake{"NoCommand", {}, 2, "no command given"},
        Mistake{"UnknownCommand",
                {"atend"},
                2,
                "'atend': no command (expected demo, attend, sequences, "},
        Mistake{"UnknownFlag",
                {"attend", "--weight=1"},
                2,
                "--weight: unknown option (the nearest is --weights)"},
        Mistake{"UnknownFlagOfAll",
                {"--serve", "a:1", "info"},
                2,
                "--serve: unknown option (the nearest is --server)"},
        Mistake{"BadNumber", {"attend", "--scale", "much"}, 2, "--scale"},
        Mistake{"BadChoice", {"attend", "--causal", "both"}, 2, "top_left"},
        Mistake{"BadDeadline", {"--deadline", "-1", "health"}, 2, "--deadline"},
        Mistake{"NoDeadline", {"--deadline", "nan", "health"}, 2, "--deadline"},
        Mistake{
            "NoTolerance", {"attend", "--tolerance", "nan"}, 2, "--tolerance"},
        Mistake{"NoIdleLimit",
                {"sequences", "import", "f", "--idle-limit", "nan"},
                2,
                "--idle-limit"},
        Mistake{"Hexadecimal", {"attend", "--top-k", "0x10"}, 2, "--top-k"},
        Mistake{"NegativeSeed", {"attend", "--seed", "-1"}, 2, "--seed"},
        Mistake{"LongOffset",
                {"attend", "--query-offset", "9223372036854775808"},
                2,
                "--query-offset"},
        Mistake{"NoPort", {"--server", "localhost", "health"}, 2, "--server: "},
        Mistake{"NoAuthority",
                {"--tls-ca", "/absent", "health"},
                2,
                "--tls-ca: '/absent'"},
        Mistake{
            "NoCertificate",
            {"--tls-certificate", "/absent", "--tls-key", "/absent", "health"},
            2,
            "--tls-certificate: '/absent'"},
        Mistake{"HalfACertificate",
                {"--tls-key", "/absent", "health"},
                2,
                "--tls-certificate and --tls-key belong together"},
        Mistake{"ServerInThisProcess",
                {"--server", "local", "health"},
                2,
                "expected HOST:PORT or unix:PATH"},
        Mistake{"NoInputs", {"attend"}, 2, "--input FILE"},
        Mistake{"NoKey", {"attend", "--query", "q.npy"}, 1, "q.npy"},
        Mistake{"NoFile",
                {"attend", "--input", "nowhere.safetensors"},
                1,
                "nowhere.safetensors"},
        Mistake{"CaseWithoutInput", {"attend", "--case", "x"}, 2, "--input"},
        Mistake{"NoSuchHead",
                {"attend", "--input", kMiniLm, "--heatmap", "4,0"},
                2,
                "4 batch entries"},
        Mistake{"NoSuchCase",
                {"attend", "--input", kMiniLm, "--case", "x"},
                2,
                "no case \"x\""}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(HelpTest, TeachesWithExamplesAndEndsWithZero) {
  const ProgramResult result = RunClient({"--help"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.output, AllOf(HasSubstr("Examples:"),
                                   HasSubstr("attention-client demo")));
}

}  // namespace
}  // namespace attention
