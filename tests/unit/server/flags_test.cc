#include "server/options/flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/common.h>

#include "server/base/version.h"
#include "server/options/option_checks.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/server/parsed_flags.h"

namespace attention::server {
namespace {

using ::attention::test::IsOk;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

TEST(Flags, DefaultsAreTheStructs) {
  const ParsedFlags parsed = Parse({});
  ASSERT_FALSE(parsed.exit.has_value()) << parsed.exit->text;
  EXPECT_EQ(parsed.options.grpc_address, "127.0.0.1");
  EXPECT_EQ(parsed.options.grpc_port, 8001);
  EXPECT_TRUE(parsed.options.http);
  EXPECT_EQ(parsed.options.http_address, "127.0.0.1");
  EXPECT_EQ(parsed.options.http_port, 8002);
  EXPECT_EQ(parsed.options.drain_time, ServerOptions().drain_time);
  EXPECT_EQ(parsed.options.max_request_bytes, 256 << 20);
  EXPECT_THAT(CheckOptions(parsed.options), IsOk());
}

TEST(Flags, ListsHaveCommasOrSeveralFlags) {
  const std::vector<std::string> both = {"https://a.example",
                                         "http://b.example:1"};
  EXPECT_EQ(Parse({"--http-allow-origin=https://a.example,http://b.example:1"})
                .options.http_allow_origin,
            both);
  EXPECT_EQ(Parse({"--http-allow-origin", "https://a.example",
                   "--http-allow-origin", "http://b.example:1"})
                .options.http_allow_origin,
            both);
  EXPECT_EQ(Parse({}, {{"ATTENTION_HTTP_ALLOW_ORIGIN",
                        "https://a.example,http://b.example:1"}})
                .options.http_allow_origin,
            both);
  EXPECT_EQ(Parse({"--http-host=a"}, {{"ATTENTION_HTTP_HOST", "b"}})
                .options.http_host,
            std::vector<std::string>{"a"});
  EXPECT_EQ(Parse({"--config", ConfigFile("http-host = [\"a\", \"b\"]\n")},
                  {{"ATTENTION_HTTP_ALLOW_ORIGIN", ""}})
                .options.http_host,
            (std::vector<std::string>{"a", "b"}));
}

TEST(Flags, FillEveryOption) {
  const ParsedFlags parsed = Parse({"--grpc-address",
                                    "::1",
                                    "--grpc-port=0",
                                    "--grpc-unix-socket",
                                    "run/a.sock",
                                    "--http=false",
                                    "--http-address",
                                    "::2",
                                    "--http-port=1",
                                    "--worker-threads",
                                    "3",
                                    "--backend",
                                    "reference",
                                    "--cuda-memory-limit",
                                    "3GiB",
                                    "--max-request-bytes",
                                    "1MiB",
                                    "--max-response-bytes",
                                    "2MB",
                                    "--max-requests-in-flight",
                                    "4",
                                    "--max-dimension",
                                    "21",
                                    "--max-weights-bytes",
                                    "22KiB",
                                    "--max-requests-per-second",
                                    "23",
                                    "--max-bytes-per-second",
                                    "24MiB",
                                    "--max-compute-time",
                                    "5s",
                                    "--max-stream-requests-in-flight",
                                    "6",
                                    "--memory-limit",
                                    "7GiB",
                                    "--max-connections",
                                    "8",
                                    "--max-connections-per-peer",
                                    "9",
                                    "--max-streams-per-connection",
                                    "10",
                                    "--connection-idle-timeout",
                                    "11min",
                                    "--keepalive-time",
                                    "13s",
                                    "--max-connection-age",
                                    "12h",
                                    "--reply-timeout",
                                    "13s",
                                    "--drain-delay",
                                    "14s",
                                    "--drain-time",
                                    "700ms",
                                    "--model-repository",
                                    "models",
                                    "--allow-model-control",
                                    "--allow-shared-memory",
                                    "--ready-file",
                                    "ready",
                                    "--log-level",
                                    "debug",
                                    "--log-format",
                                    "json"});
  ASSERT_FALSE(parsed.exit.has_value()) << parsed.exit->text;
  const ServerOptions& options = parsed.options;
  EXPECT_EQ(options.grpc_address, "::1");
  EXPECT_EQ(options.grpc_port, 0);
  EXPECT_EQ(options.grpc_unix_socket, "run/a.sock");
  EXPECT_FALSE(options.http);
  EXPECT_EQ(options.http_address, "::2");
  EXPECT_EQ(options.http_port, 1);
  EXPECT_EQ(options.worker_threads, 3);
  EXPECT_EQ(options.backend, "reference");
  EXPECT_EQ(options.cuda_memory_limit, 3LL << 30);
  EXPECT_EQ(options.max_request_bytes, 1 << 20);
  EXPECT_EQ(options.max_response_bytes, 2 << 20);
  EXPECT_EQ(options.max_requests_in_flight, 4);
  EXPECT_EQ(options.max_dimension, 21);
  EXPECT_EQ(options.max_weights_bytes, 22 << 10);
  EXPECT_EQ(options.max_requests_per_second, 23);
  EXPECT_EQ(options.max_bytes_per_second, 24 << 20);
  EXPECT_EQ(options.max_compute_time, std::chrono::seconds(5));
  EXPECT_EQ(options.max_stream_requests_in_flight, 6);
  EXPECT_EQ(options.memory_limit, 7LL << 30);
  EXPECT_EQ(options.max_connections, 8);
  EXPECT_EQ(options.max_connections_per_peer, 9);
  EXPECT_EQ(options.max_streams_per_connection, 10);
  EXPECT_EQ(options.connection_idle_timeout, std::chrono::minutes(11));
  EXPECT_EQ(options.keepalive_time, std::chrono::seconds(13));
  EXPECT_EQ(options.max_connection_age, std::chrono::hours(12));
  EXPECT_EQ(options.reply_timeout, std::chrono::seconds(13));
  EXPECT_EQ(options.drain_delay, std::chrono::seconds(14));
  EXPECT_EQ(options.drain_time, std::chrono::milliseconds(700));
  EXPECT_EQ(options.model_repository, "models");
  EXPECT_TRUE(options.allow_model_control);
  EXPECT_TRUE(options.allow_shared_memory);
  EXPECT_EQ(options.ready_file, "ready");
  EXPECT_EQ(options.log_level, "debug");
  EXPECT_EQ(options.log_format, "json");
}

TEST(Flags, LevelsHaveTheNamesThatTheLogWrites) {
  for (const auto level :
       {spdlog::level::trace, spdlog::level::debug, spdlog::level::info,
        spdlog::level::warn, spdlog::level::err, spdlog::level::off}) {
    const auto name = spdlog::level::to_string_view(level);
    EXPECT_EQ(FlagsRefusal({"--log-level", {name.data(), name.size()}}), "");
  }
}

TEST(Flags, TimesWithoutUnitAreSeconds) {
  EXPECT_EQ(Parse({"--drain-time", "2.5"}).options.drain_time,
            std::chrono::milliseconds(2500));
  EXPECT_EQ(Parse({"--drain-time", "2min"}).options.drain_time,
            std::chrono::minutes(2));
}

TEST(Flags, AFlagWinsOverTheEnvironment) {
  EXPECT_EQ(Parse({"--grpc-port", "1"}, {{"ATTENTION_GRPC_PORT", "2"}})
                .options.grpc_port,
            1);
}

TEST(Flags, TheEnvironmentWinsOverTheFile) {
  const std::string file = ConfigFile("grpc-port = 3\n");
  EXPECT_EQ(Parse({"--config", file}, {{"ATTENTION_GRPC_PORT", "2"}})
                .options.grpc_port,
            2);
}

TEST(Flags, AFlagWinsOverTheFile) {
  const std::string file = ConfigFile("grpc-port = 3\n");
  EXPECT_EQ(Parse({"--config", file, "--grpc-port", "1"}).options.grpc_port, 1);
}

TEST(Flags, TheFileWinsOverTheDefault) {
  const std::string file = ConfigFile(
      "# a comment\n"
      "grpc-address = \"0.0.0.0\"\n"
      "max-request-bytes = 64MiB\n"
      "drain-time = 5s\n");
  const ParsedFlags parsed = Parse({"--config", file});
  ASSERT_FALSE(parsed.exit.has_value()) << parsed.exit->text;
  EXPECT_EQ(parsed.options.grpc_address, "0.0.0.0");
  EXPECT_EQ(parsed.options.max_request_bytes, 64 << 20);
  EXPECT_EQ(parsed.options.drain_time, std::chrono::seconds(5));
  EXPECT_EQ(parsed.options.grpc_port, 8001);
}

TEST(Flags, AValueInTheFileMayBeQuoted) {
  EXPECT_EQ(
      Parse({"--config", ConfigFile("resident-folder = \"/a, b #1\" # c")})
          .options.resident_folder,
      "/a, b #1");
  EXPECT_EQ(Parse({"--config", ConfigFile("resident-folder = '/a \"b\"'\r\n")})
                .options.resident_folder,
            "/a \"b\"");
}

TEST(Flags, ListsInTheFileHaveCommasOrSeveralLines) {
  const std::vector<std::string> both = {"[::1]:80", "[::1]:81"};
  for (const char* text :
       {"peers = [::1]:80,[::1]:81", "peers = [::1]:80, '[::1]:81'  # two",
        "peers = [\"[::1]:80\", \"[::1]:81\"]",
        "peers = [::1]:80\nhttp = true\npeers = [::1]:81"}) {
    const ParsedFlags parsed = Parse({"--config", ConfigFile(text)});
    ASSERT_FALSE(parsed.exit.has_value()) << parsed.exit->text;
    EXPECT_EQ(parsed.options.peers, both) << text;
  }
}

TEST(Flags, TheEnvironmentMayNameTheFile) {
  const std::string file = ConfigFile("grpc-port = 3\n");
  EXPECT_EQ(Parse({}, {{"ATTENTION_CONFIG", file}}).options.grpc_port, 3);
}

TEST(Flags, AnEmptyVariableCountsAsNotSet) {
  EXPECT_EQ(Parse({}, {{"ATTENTION_GRPC_PORT", ""}}).options.grpc_port, 8001);
}

TEST(Flags, OfARepeatedFlagTheLastCounts) {
  EXPECT_EQ(Parse({"--grpc-port", "1", "--grpc-port", "2"}).options.grpc_port,
            2);
}

TEST(Flags, ASwitchMayComeFromEverywhereAndBeTurnedOffAgain) {
  EXPECT_FALSE(Parse({}).options.allow_shared_memory);
  const std::string file = ConfigFile("allow-shared-memory = true\n");
  EXPECT_TRUE(Parse({"--config", file}).options.allow_shared_memory);
  const Variables on = {{"ATTENTION_ALLOW_SHARED_MEMORY", "true"}};
  EXPECT_TRUE(Parse({}, on).options.allow_shared_memory);
  EXPECT_FALSE(
      Parse({"--allow-shared-memory=false"}, on).options.allow_shared_memory);
}

TEST(Flags, HelpTeaches) {
  const ParsedFlags parsed = Parse({"--help"});
  ASSERT_TRUE(parsed.exit.has_value());
  EXPECT_EQ(parsed.exit->code, 0);
  for (const char* text :
       {"--grpc-address", "ATTENTION_GRPC_ADDRESS", "127.0.0.1", "8001",
        "256MiB", "Limits", "Examples:", "SIGTERM"}) {
    EXPECT_THAT(parsed.exit->text, HasSubstr(text));
  }
}

TEST(Flags, VersionIsTheProjects) {
  const ParsedFlags parsed = Parse({"--version"});
  ASSERT_TRUE(parsed.exit.has_value());
  EXPECT_EQ(parsed.exit->code, 0);
  EXPECT_EQ(parsed.exit->text, std::string("attention-server ") + Version() +
                                   "\nwith " + LinkedVersions() + "\n");
}

TEST(Flags, VersionNamesWhatIsLinked) {
  EXPECT_THAT(LinkedVersions(),
              ::testing::MatchesRegex("gRPC [0-9.]+, Protobuf [0-9.]+, OpenSSL "
                                      "[0-9.]+, oneTBB [0-9.]+, Abseil [0-9]+, "
                                      "spdlog [0-9.]+"));
}

TEST(Flags, AWrongVariableDoesNotMatterBesideAFlag) {
  EXPECT_EQ(Parse({"--grpc-port", "1"}, {{"ATTENTION_GRPC_PORT", "http"}})
                .options.grpc_port,
            1);
}

TEST(Flags, EachHasAVariable) {
  EXPECT_THAT(OptionVariables(),
              AllOf(Contains("ATTENTION_CONFIG"), Contains("ATTENTION_BACKEND"),
                    Contains("ATTENTION_ALLOW_MODEL_CONTROL")));
}

}  // namespace
}  // namespace attention::server
