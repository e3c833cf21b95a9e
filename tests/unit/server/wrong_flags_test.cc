// What is refused of flags, the environment and config files, and how.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/server/parsed_flags.h"

namespace attention::server {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct WrongFlag {
  const char* name;
  std::vector<std::string> arguments;
  const char* option;
  const char* had;
};

class WrongFlagsRefusal : public ::testing::TestWithParam<WrongFlag> {};

TEST_P(WrongFlagsRefusal, WithTheOptionAndWhatItHad) {
  EXPECT_THAT(FlagsRefusal(GetParam().arguments),
              AllOf(HasSubstr(GetParam().option), HasSubstr(GetParam().had)));
}

INSTANTIATE_TEST_SUITE_P(
    Wrong, WrongFlagsRefusal,
    ::testing::Values(
        WrongFlag{"UnknownFlag",
                  {"--grpc-prot", "1"},
                  "attention-server: --grpc-prot: unknown option",
                  "(the nearest is --grpc-port)"},
        WrongFlag{"UnknownFlagWithItsValue",
                  {"--loglevel=debug"},
                  "attention-server: --loglevel: unknown option",
                  "(the nearest is --log-level)"},
        WrongFlag{"Positional", {"serve"}, "'serve': not an option", ""},
        WrongFlag{"SwitchIsAWord",
                  {"--allow-shared-memory=maybe"},
                  "--allow-shared-memory",
                  "'maybe' (expected true or false)"},
        WrongFlag{"ControlOfNoModels",
                  {"--allow-model-control"},
                  "--allow-model-control",
                  "expected --model-repository"},
        WrongFlag{"CertificateWithoutKey",
                  {"--tls-certificate", "a.crt"},
                  "--tls-certificate: 'a.crt'",
                  "expected --tls-key"},
        WrongFlag{"KeyWithoutCertificate",
                  {"--tls-key", "a.key"},
                  "--tls-key: 'a.key'",
                  "expected --tls-certificate"},
        WrongFlag{"CallersCertificatesWithoutTls",
                  {"--tls-client-ca", "a.crt"},
                  "--tls-client-ca: 'a.crt'",
                  "expected --tls-certificate"},
        WrongFlag{"TlsAndInsecure",
                  {"--tls-certificate", "a", "--tls-key", "b", "--insecure"},
                  "--insecure",
                  "expected no --tls-certificate"},
        WrongFlag{
            "NoValue", {"--grpc-port"}, "--grpc-port: its value", "missing"},
        WrongFlag{"PortNotANumber",
                  {"--grpc-port", "http"},
                  "--grpc-port",
                  "'http' (expected a whole number)"},
        WrongFlag{"PortTooLarge",
                  {"--grpc-port", "70000"},
                  "--grpc-port",
                  "70000 (expected 0 to 65535)"},
        WrongFlag{"PortBeyondInt",
                  {"--grpc-port", "4294975297"},
                  "--grpc-port",
                  "4294975297"},
        WrongFlag{"NegativePort", {"--grpc-port=-1"}, "--grpc-port", "-1"},
        WrongFlag{"EmptyAddress",
                  {"--grpc-address", ""},
                  "--grpc-address: its value",
                  "missing"},
        WrongFlag{"NoCallersFile",
                  {"--callers-file", ""},
                  "--callers-file: its value",
                  "missing"},
        WrongFlag{
            "NoClientsAuthority",
            {"--tls-certificate", "a", "--tls-key", "b", "--tls-client-ca", ""},
            "--tls-client-ca: its value",
            "missing"},
        WrongFlag{"EmptyValueBehindAnEquals",
                  {"--ready-file=", "--callers-file=a"},
                  "--ready-file: its value",
                  "missing"},
        WrongFlag{"EmptyInAList",
                  {"--peers", "10.1.0.1:8001", "--peers", ""},
                  "--peers: its value",
                  "missing"},
        WrongFlag{
            "NoConfigFile", {"--config", ""}, "--config: its value", "missing"},
        WrongFlag{"NegativeThreads",
                  {"--worker-threads=-1"},
                  "--worker-threads",
                  "-1"},
        WrongFlag{"Backend",
                  {"--backend", "abacus"},
                  "--backend",
                  "'abacus' (expected auto, cuda, "},
        WrongFlag{"SizeUnit",
                  {"--max-request-bytes", "3XB"},
                  "--max-request-bytes",
                  "'3XB' (expected a size"},
        WrongFlag{"SizeTooLarge",
                  {"--max-response-bytes", "2GiB"},
                  "--max-response-bytes",
                  "2147483648 bytes (expected 1024 to 2147483647"},
        WrongFlag{"SizeTooSmall",
                  {"--max-request-bytes", "1"},
                  "--max-request-bytes",
                  "1 bytes"},
        WrongFlag{"SizeOverflow",
                  {"--memory-limit", "99999999EiB"},
                  "--memory-limit",
                  "'99999999EiB'"},
        WrongFlag{"MemoryTooLittle",
                  {"--memory-limit", "1MiB"},
                  "--memory-limit",
                  "1048576 bytes (expected 16777216 to "},
        WrongFlag{"NoRequests",
                  {"--max-requests-in-flight", "0"},
                  "--max-requests-in-flight",
                  "0 (expected 1"},
        WrongFlag{"NoStreamRequests",
                  {"--max-stream-requests-in-flight", "0"},
                  "--max-stream-requests-in-flight",
                  "0 (expected 1"},
        WrongFlag{"TimeUnit",
                  {"--drain-time", "5parsec"},
                  "--drain-time",
                  "'5parsec' (expected a time"},
        WrongFlag{
            "NegativeTime", {"--drain-time=-1s"}, "--drain-time", "-1000 ms"},
        WrongFlag{"TimeBeyondInt",
                  {"--drain-time", "1e300"},
                  "--drain-time",
                  "'1e300' (expected a time"},
        WrongFlag{"TimeBelowAMillisecond",
                  {"--max-compute-time", "500us"},
                  "--max-compute-time",
                  "'500us' (expected a time"},
        WrongFlag{"TimeTooLong",
                  {"--drain-time", "25h"},
                  "--drain-time",
                  "90000000 ms (expected 0 to 86400000 ms)"},
        WrongFlag{"Level",
                  {"--log-level", "loud"},
                  "--log-level",
                  "'loud' (expected trace, debug"},
        WrongFlag{"OnePortForBoth",
                  {"--grpc-port", "9000", "--http-port", "9000"},
                  "--http-port: 9000 is --grpc-port, too",
                  "expected another one"},
        WrongFlag{"Format",
                  {"--log-format", "xml"},
                  "--log-format",
                  "'xml' (expected text, json)"},
        WrongFlag{"NoSuchFile",
                  {"--config", "/nonexistent.toml"},
                  "--config: /nonexistent.toml",
                  "not readable (expected a file)"}),
    [](const auto& row) { return std::string(row.param.name); });

TEST(WrongFlagsTest, AVariableIsRefusedLikeAFlagAndNamed) {
  EXPECT_THAT(FlagsRefusal({}, {{"ATTENTION_GRPC_PORT", "70000"}}),
              AllOf(HasSubstr("--grpc-port: 70000"),
                    HasSubstr("(ATTENTION_GRPC_PORT in the environment)")));
}

TEST(WrongFlagsTest, AValueInTheFileIsRefused) {
  EXPECT_THAT(FlagsRefusal({"--config", ConfigFile("grpc-port = 70000\n")}),
              HasSubstr("--grpc-port: 70000"));
}

struct WrongLine {
  const char* name;
  const char* file;
  const char* says;
};

class WrongLineRefusal : public ::testing::TestWithParam<WrongLine> {};

TEST_P(WrongLineRefusal, WithTheLineAndItsKey) {
  EXPECT_THAT(FlagsRefusal({"--config", ConfigFile(GetParam().file)}),
              HasSubstr(GetParam().says));
}

INSTANTIATE_TEST_SUITE_P(
    Wrong, WrongLineRefusal,
    ::testing::Values(
        WrongLine{"NoValue", "insecure =\n",
                  "--config: line 1: insecure: its value is missing"},
        WrongLine{"EmptyValue", "insecure = \"\"\n",
                  "line 1: insecure: its value is missing"},
        WrongLine{"CommentForAValue", "insecure = # true\n",
                  "line 1: insecure: its value is missing"},
        WrongLine{"KeyAlone", "# a comment\n\ninsecure\n",
                  "line 3: 'insecure' (expected KEY = VALUE)"},
        WrongLine{"Section", "[server]\n",
                  "line 1: '[server]' (expected KEY = VALUE)"},
        WrongLine{"PathWithASpace", "grpc-unix-socket = /tmp/my sock\n",
                  "line 1: grpc-unix-socket: '/tmp/my sock' (expected one "
                  "value, in quotes where it has spaces)"},
        WrongLine{"CommentAfterASemicolon", "grpc-port = 9000 ; was 8001\n",
                  "line 1: grpc-port: '9000 ; was 8001' (expected one"},
        WrongLine{"TimeWithASpace", "drain-time = 5 min\n",
                  "line 1: drain-time: '5 min' (expected one"},
        WrongLine{"OpenQuote", "tls-key = \"a.key\n",
                  "line 1: tls-key: '\"a.key' (expected one"},
        WrongLine{"SpaceInAList", "http-host = a, b c\n",
                  "line 1: http-host: 'b c' (expected one"},
        WrongLine{"NothingInAList", "http-host = a,,b\n",
                  "line 1: http-host: its value is missing"},
        WrongLine{"UnknownKey", "# a comment\ngrpc-prot = 3\n",
                  "line 2: grpc-prot: unknown key (the nearest is grpc-port)"},
        WrongLine{"Twice", "grpc-port = 1\nhttp-port = 2\ngrpc-port = 3\n",
                  "line 3: grpc-port: comes twice"}),
    [](const auto& row) { return std::string(row.param.name); });

}  // namespace
}  // namespace attention::server
