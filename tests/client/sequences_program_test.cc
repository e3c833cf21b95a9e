// attention-client sequences, run as a person runs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "attention_client/client.h"
#include "tests/client/held_server.h"
#include "tests/client/run_program.h"
#include "tests/client/sequences_of_test.h"
#include "tests/support/temporary_folder.h"

namespace attention {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::SizeIs;
using ::testing::StartsWith;

class SequencesProgramTest : public ::testing::Test {
 protected:
  SequencesProgramTest() {
    server::ServerOptions options;
    options.resident_folder = folder_.path();
    server_ = client::StartServer(nullptr, 0, options);
    client_ = std::make_unique<client::Client>(
        *client::Client::Create({.target = server_->address()}));
  }

  // attention-client sequences ARGUMENTS
  ProgramResult RunHere(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(),
                     {ATTENTION_CLIENT_PROGRAM, "sequences"});
    return RunProgram(arguments, {{"ATTENTION_SERVER", server_->address()}});
  }

  void Make(const std::string& name, const std::string& label = "",
            int64_t keys = 0) {
    const auto made = client_->CreateSequences(
        {{.form = client::SmallForm(), .name = name, .label = label}});
    ASSERT_TRUE(made.ok()) << made.status();
    if (keys == 0) return;
    ASSERT_TRUE(AppendSmall(*client_, {.name = name}, 0, keys).ok());
  }

  // Whether it failed with this exit code and one line that begins so.
  static void ExpectFailure(const ProgramResult& result, int exit_code,
                            const std::string& message) {
    EXPECT_EQ(result.exit_code, exit_code);
    EXPECT_THAT(result.output, IsEmpty());
    EXPECT_THAT(result.errors, StartsWith("attention-client: " + message));
  }

  const test::TemporaryFolder folder_;
  std::unique_ptr<server::Server> server_;
  std::unique_ptr<client::Client> client_;
};

TEST_F(SequencesProgramTest, ListIsATableWithUnits) {
  Make("mine", "chat", 100);
  const ProgramResult result = RunHere({"list"});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_THAT(result.output,
              MatchesRegex("NAME +KEYS +LAYERS +MEMORY +IDLE +LABEL\n"
                           "mine +100 +1 +[0-9.]+ KiB +[0-9]+ m?s +chat\n"
                           "1 sequence\n"));
}

TEST_F(SequencesProgramTest, ListOfNothingSaysSo) {
  EXPECT_EQ(RunHere({"list"}).output, "no sequences\n");
}

TEST_F(SequencesProgramTest, ListIsNarrowedByLabels) {
  Make("1", "chat");
  Make("2", "chat/b");
  Make("3", "other");
  EXPECT_THAT(RunHere({"list", "--label-prefix", "chat"}).output,
              HasSubstr("2 sequences"));
  EXPECT_THAT(RunHere({"list", "--label", "chat"}).output,
              HasSubstr("1 sequence\n"));
  ExpectFailure(RunHere({"list", "--label", "a", "--label-prefix", "b"}), 2,
                "--label");
}

TEST_F(SequencesProgramTest, ListHasWhatDoesNotFitOnAPage) {
  for (int call = 0; call < 5; ++call) {
    std::vector<client::NewSequence> many(256, {.form = client::SmallForm()});
    ASSERT_TRUE(client_->CreateSequences(many).ok());
  }
  EXPECT_THAT(RunHere({"list"}).output, HasSubstr("\n1280 sequences\n"));
}

TEST_F(SequencesProgramTest, JsonIsForPrograms) {
  Make("mine", "chat", 100);
  const auto list = nlohmann::json::parse(RunHere({"list", "--json"}).output);
  ASSERT_THAT(list["sequences"], SizeIs(1));
  EXPECT_EQ(list["sequences"][0]["name"], "mine");
  const auto one =
      nlohmann::json::parse(RunHere({"describe", "mine", "--json"}).output);
  EXPECT_EQ(one["lengths"], nlohmann::json::array({100}));
  EXPECT_EQ(one["idle_limit_ms"], 3'600'000);
  EXPECT_EQ(nlohmann::json::parse(
                RunHere({"delete", "mine", "no", "--json"}).output)["deleted"],
            1);
}

TEST_F(SequencesProgramTest, DescribeHasFormKeysAndLimit) {
  Make("mine", "chat", 100);
  const ProgramResult result = RunHere({"describe", "mine"});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_THAT(
      result.output,
      AllOf(HasSubstr("2 heads, keys of width 4, values of width 4, "
                      "FP32"),
            HasSubstr("keys         100\n"), HasSubstr("and goes after 1 h")));
}

TEST_F(SequencesProgramTest, WhatIsNotThereEndsWithOneAndItsName) {
  ExpectFailure(RunHere({"describe", "no"}), 1,
                "NOT_FOUND: there is no sequence 'no'");
  ExpectFailure(RunHere({"export", "no", "file"}), 1, "NOT_FOUND: ");
  ExpectFailure(RunHere({"import", "no"}), 1, "NOT_FOUND: file: ");
}

TEST_F(SequencesProgramTest, DeleteCountsThoseThatWereThere) {
  Make("a");
  Make("b");
  const ProgramResult result = RunHere({"delete", "a", "no", "b"});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_EQ(result.output, "deleted 2 of 3\n");
  EXPECT_EQ(RunHere({"list"}).output, "no sequences\n");
}

TEST_F(SequencesProgramTest, DeleteTakesMoreNamesThanACallDoes) {
  std::vector<std::string> command = {"delete"};
  for (int i = 0; i < 600; ++i) command.push_back(absl::StrCat("s", i));
  Make("s0");
  Make("s599");
  EXPECT_EQ(RunHere(command).output, "deleted 2 of 600\n");
}

TEST_F(SequencesProgramTest, ExportAndImportMakeTheSequenceAgain) {
  Make("mine", "", 100);
  const ProgramResult written = RunHere({"export", "mine", "file"});
  EXPECT_EQ(written.exit_code, 0) << written.errors;
  EXPECT_THAT(written.output,
              MatchesRegex("wrote file on the server, [0-9.]+ KiB\n"));
  const ProgramResult read = RunHere({"import", "file", "--name", "again",
                                      "--label", "back", "--idle-limit", "90"});
  EXPECT_EQ(read.exit_code, 0) << read.errors;
  EXPECT_EQ(read.output, "again\n");
  const auto again = client_->DescribeSequence("again");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_THAT(again->lengths, ElementsAre(100));
  EXPECT_EQ(again->label, "back");
  EXPECT_EQ(again->idle_limit, std::chrono::seconds(90));
}

TEST_F(SequencesProgramTest, ImportWithoutANamePrintsTheServers) {
  Make("mine");
  ASSERT_EQ(RunHere({"export", "mine", "file"}).exit_code, 0);
  EXPECT_THAT(RunHere({"import", "file"}).output,
              MatchesRegex("[0-9a-f]{32}\n"));
}

TEST_F(SequencesProgramTest, WrongInputEndsWithTwoOrTheServersWords) {
  Make("mine");
  ExpectFailure(RunHere({}), 2,
                "sequences: no command given: list, describe, delete");
  ExpectFailure(RunHere({"lits"}), 2, "");
  ExpectFailure(RunHere({"describe"}), 2, "NAME is required");
  ExpectFailure(RunHere({"export", "mine"}), 2, "FILE is required");
  ExpectFailure(RunHere({"import", "file", "--idle-limit", "0"}), 2,
                "--idle-limit: ");
  ExpectFailure(RunHere({"export", "mine", "../file"}), 1,
                "INVALID_ARGUMENT: file: '../file'");
  ExpectFailure(RunHere({"list", "--server", "127.0.0.1:1"}), 1,
                "no server answers at 127.0.0.1:1");
}

TEST_F(SequencesProgramTest, HelpTeachesEveryCommand) {
  const ProgramResult result = RunHere({"--help"});
  EXPECT_EQ(result.exit_code, 0);
  for (const char* command :
       {"list", "describe", "delete", "export", "import"}) {
    EXPECT_THAT(result.output, HasSubstr(absl::StrCat(
                                   "attention-client sequences ", command)));
    EXPECT_EQ(RunHere({command, "--help"}).exit_code, 0);
  }
}

}  // namespace
}  // namespace attention
