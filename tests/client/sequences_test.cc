// Sequences that are made, listed, written and ended, against a real server.
#include "attention_client/sequences.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "attention_client/client.h"
#include "tests/client/sequences_fixture.h"
#include "tests/client/sequences_of_test.h"

namespace attention::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST_F(SequencesTest, SeveralAreMadeAtOnce) {
  const auto made = client().CreateSequences(
      {{.form = SmallForm(), .name = "a"},
       {.form = SmallForm(), .label = "mine"},
       {.form = {.heads = 1,
                 .key_width = 64,
                 .value_width = 0,
                 .datatype = DataType::kBFloat16,
                 .layers = 3},
        .name = "c",
        .idle_limit = std::chrono::milliseconds(90'000)}});
  ASSERT_TRUE(made.ok()) << made.status();
  ASSERT_THAT(made->names, SizeIs(3));
  EXPECT_EQ(made->names[0], "a");
  EXPECT_THAT(made->names[1], SizeIs(32));  // 128 random bits
  const auto third = client().DescribeSequence("c");
  ASSERT_TRUE(third.ok()) << third.status();
  EXPECT_EQ(third->form.key_width, 64);
  EXPECT_EQ(third->form.value_width, 0);
  EXPECT_EQ(third->form.datatype, DataType::kBFloat16);
  EXPECT_EQ(third->form.layers, 3);
  EXPECT_EQ(third->idle_limit, std::chrono::milliseconds(90'000));
  EXPECT_EQ(third->incarnation, made->incarnation);
  EXPECT_THAT(third->lengths, ElementsAre(0, 0, 0));
}

TEST_F(SequencesTest, ANameThatIsTakenIsAlreadyExistsAndMakesNone) {
  MakeSequence(client(), "taken");
  const auto made =
      client().CreateSequences({{.form = SmallForm(), .name = "new"},
                                {.form = SmallForm(), .name = "taken"}});
  EXPECT_EQ(made.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(made.status().message()), HasSubstr("'taken'"));
  EXPECT_EQ(client().DescribeSequence("new").status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(SequencesTest, AFormThatCannotBeIsRefused) {
  SequenceForm form = SmallForm();
  // Of INT32 the server says it, of FP64 the client: the wire has no such name.
  for (const DataType type : {DataType::kInt32, DataType::kFloat64}) {
    form.datatype = type;
    const auto made =
        client().CreateSequences({{.form = SmallForm()}, {.form = form}});
    EXPECT_EQ(made.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(made.status().message()), HasSubstr("datatype: "));
  }
}

TEST_F(SequencesTest, WhatIsNotThereIsNotFoundByEveryCall) {
  const absl::Status statuses[] = {
      AppendSmall(client(), {.name = "no"}, 0, 1).status(),
      client().TruncateSequence("no", 0),
      client().ForkSequence("no").status(),
      client().DescribeSequence("no").status(),
      client().ExportSequence("no", "file").status(),
      client().ImportSequence({.file = "no"}).status(),
      client().Attend(ReadRequest("no")).status()};
  for (const absl::Status& status : statuses) {
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
  }
}

TEST_F(SequencesTest, TruncateKeepsTheFirstKeys) {
  MakeSequence(client(), "a");
  ASSERT_TRUE(AppendSmall(client(), {.name = "a"}, 0, 40).ok());
  EXPECT_EQ(client().TruncateSequence("a", 41).code(),
            absl::StatusCode::kOutOfRange);
  const absl::Status status = client().TruncateSequence("a", 7);
  ASSERT_TRUE(status.ok()) << status;
  ExpectSame(client().Attend(ReadRequest("a")),
             client().Attend(SentRequest(7)));
}

TEST_F(SequencesTest, AForkGoesItsOwnWay) {
  MakeSequence(client(), "a");
  ASSERT_TRUE(AppendSmall(client(), {.name = "a"}, 0, 40).ok());
  const auto fork =
      client().ForkSequence("a", {.length = 30, .name = "b", .label = "forks"});
  ASSERT_TRUE(fork.ok()) << fork.status();
  EXPECT_EQ(*fork, "b");
  ASSERT_TRUE(AppendSmall(client(), {.name = "b"}, 100, 1).ok());
  EXPECT_THAT(Lengths("a"), ElementsAre(40));
  EXPECT_THAT(Lengths("b"), ElementsAre(31));
  EXPECT_EQ(client().DescribeSequence("b")->label, "forks");
  ExpectSame(client().Attend(ReadRequest("a")),
             client().Attend(SentRequest(40)));
}

TEST_F(SequencesTest, AForkWithoutOptionsIsAllOfItUnderANewName) {
  ASSERT_TRUE(client()
                  .CreateSequences({{.form = SmallForm(),
                                     .name = "a",
                                     .label = "mine",
                                     .idle_limit = std::chrono::seconds(5)}})
                  .ok());
  ASSERT_TRUE(AppendSmall(client(), {.name = "a"}, 0, 40).ok());
  const auto fork = client().ForkSequence("a");
  ASSERT_TRUE(fork.ok()) << fork.status();
  const auto description = client().DescribeSequence(*fork);
  ASSERT_TRUE(description.ok()) << description.status();
  EXPECT_EQ(description->label, "mine");
  EXPECT_EQ(description->idle_limit, std::chrono::seconds(5));
  ExpectSame(client().Attend(ReadRequest(*fork)),
             client().Attend(SentRequest(40)));
}

TEST_F(SequencesTest, AForkToATakenNameIsAlreadyExists) {
  MakeSequence(client(), "a");
  EXPECT_EQ(client().ForkSequence("a", {.name = "a"}).status().code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(client().ForkSequence("a", {.length = 1}).status().code(),
            absl::StatusCode::kOutOfRange);
}

TEST_F(SequencesTest, ADescriptionHasBytesAndIdleTime) {
  MakeSequence(client(), "a");
  ASSERT_TRUE(AppendSmall(client(), {.name = "a"}, 0, 1000).ok());
  const auto description = client().DescribeSequence("a");
  ASSERT_TRUE(description.ok()) << description.status();
  EXPECT_GE(description->bytes, 64'000U);  // two heads, widths of 4 and 4
  EXPECT_LT(description->idle, std::chrono::minutes(1));
  EXPECT_EQ(description->idle_limit, std::chrono::hours(1));  // the server's
}

std::vector<std::string> NamesOf(
    const std::vector<SequenceDescription>& sequences) {
  std::vector<std::string> names;
  names.reserve(sequences.size());
  for (const SequenceDescription& sequence : sequences) {
    names.push_back(sequence.name);
  }
  return names;
}

TEST_F(SequencesTest, AListComesPageByPageInOrder) {
  for (const char* name : {"c", "a", "e", "b", "d"}) {
    MakeSequence(client(), name);
  }
  SequenceQuery query = {.page_size = 2};
  std::vector<std::vector<std::string>> pages;
  do {
    const auto page = client().ListSequences(query);
    ASSERT_TRUE(page.ok()) << page.status();
    pages.push_back(NamesOf(page->sequences));
    query.page_token = page->next_page_token;
  } while (!query.page_token.empty());
  EXPECT_THAT(pages, ElementsAre(ElementsAre("a", "b"), ElementsAre("c", "d"),
                                 ElementsAre("e")));
  const auto all = client().ListAllSequences({.page_size = 2});
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_THAT(NamesOf(*all), ElementsAre("a", "b", "c", "d", "e"));
}

TEST_F(SequencesTest, AListIsOfALabelOrOfThoseThatBeginWithIt) {
  for (const auto& [name, label] :
       {std::pair("1", "chat"), std::pair("2", "chat/b"),
        std::pair("3", "other")}) {
    ASSERT_TRUE(client()
                    .CreateSequences(
                        {{.form = SmallForm(), .name = name, .label = label}})
                    .ok());
  }
  const auto begin = client().ListSequences({.label_prefix = "chat"});
  const auto just = client().ListSequences({.label = "chat"});
  const auto none = client().ListSequences({.label = ""});
  ASSERT_TRUE(begin.ok() && just.ok() && none.ok()) << just.status();
  EXPECT_THAT(NamesOf(begin->sequences), ElementsAre("1", "2"));
  EXPECT_THAT(NamesOf(just->sequences), ElementsAre("1"));
  EXPECT_THAT(none->sequences, IsEmpty());
}

TEST_F(SequencesTest, AListRefusesAPageThatCannotBe) {
  EXPECT_EQ(client().ListSequences({.page_size = 0}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(client().ListAllSequences({.page_token = "?"}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(SequencesTest, DeleteCountsThoseThatWereThere) {
  MakeSequence(client(), "a");
  MakeSequence(client(), "b");
  const auto deleted = client().DeleteSequences({"a", "no", "b"});
  ASSERT_TRUE(deleted.ok()) << deleted.status();
  EXPECT_EQ(*deleted, 2);
  EXPECT_EQ(client().DescribeSequence("a").status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(SequencesTest, WhatIsExportedIsImportedWithItsBits) {
  MakeSequence(client(), "a", 2);
  ASSERT_TRUE(AppendSmall(client(), {.name = "a"}, 0, 40).ok());
  const auto bytes = client().ExportSequence("a", "a.safetensors");
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_GE(*bytes, 2560U);  // of 40 keys and values
  const auto imported =
      client().ImportSequence({.file = "a.safetensors",
                               .name = "b",
                               .label = "back",
                               .idle_limit = std::chrono::seconds(9)});
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(imported->name, "b");
  EXPECT_THAT(imported->lengths, ElementsAre(40, 0));
  const auto description = client().DescribeSequence("b");
  ASSERT_TRUE(description.ok()) << description.status();
  EXPECT_EQ(description->label, "back");
  EXPECT_EQ(description->idle_limit, std::chrono::seconds(9));
  EXPECT_EQ(description->incarnation, imported->incarnation);
  ExpectSame(client().Attend(ReadRequest("b")),
             client().Attend(SentRequest(40)));
  EXPECT_EQ(client()
                .ImportSequence({.file = "a.safetensors", .name = "b"})
                .status()
                .code(),
            absl::StatusCode::kAlreadyExists);
}

TEST_F(SequencesTest, AFileOutsideTheFolderIsRefused) {
  MakeSequence(client(), "a");
  EXPECT_EQ(client().ExportSequence("a", "../a").status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(SequencesTest, AServerWithoutAFolderWritesNoFiles) {
  const auto server = StartServer();
  const auto client = Client::Create({.target = server->address()});
  MakeSequence(*client, "a");
  EXPECT_EQ(client->ExportSequence("a", "a").status().code(),
            absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace attention::client
