// Sequences through the C++ client, against a real server.
#include "attention_client/sequences.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "attention_client/client.h"
#include "tests/client/held_server.h"
#include "tests/client/sequences_of_test.h"
#include "tests/support/temporary_folder.h"

namespace attention::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class SequencesTest : public ::testing::Test {
 protected:
  SequencesTest() {
    server::ServerOptions options;
    options.resident_folder = folder_.path();
    server_ = StartServer(nullptr, 0, options);
    client_ = std::make_unique<Client>(
        *Client::Create({.target = server_->address()}));
  }

  const Client& client() const { return *client_; }

  // The keys of a sequence's layers; empty where it is not there.
  std::vector<int64_t> Lengths(const std::string& name) {
    const auto description = client().DescribeSequence(name);
    return description.ok() ? description->lengths : std::vector<int64_t>();
  }

  const test::TemporaryFolder folder_;
  std::unique_ptr<server::Server> server_;
  std::unique_ptr<Client> client_;
};

// Both answers have the same bits.
void ExpectSame(const absl::StatusOr<AttendResult>& read,
                const absl::StatusOr<AttendResult>& sent) {
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_TRUE(sent.ok()) << sent.status();
  EXPECT_EQ(read->output.shape(), sent->output.shape());
  EXPECT_EQ(read->output.bytes(), sent->output.bytes());
  ASSERT_EQ(read->weights.has_value(), sent->weights.has_value());
  if (!read->weights) return;
  EXPECT_EQ(read->weights->bytes(), sent->weights->bytes());
}

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
  // Of INT8 the server says it, of FP64 the client: the wire has no such name.
  for (const DataType type : {DataType::kInt8, DataType::kFloat64}) {
    form.datatype = type;
    const auto made =
        client().CreateSequences({{.form = SmallForm()}, {.form = form}});
    EXPECT_EQ(made.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(made.status().message()), HasSubstr("datatype: "));
  }
}

TEST_F(SequencesTest, AttendingGivesTheBitsOfKeysThatAreSent) {
  MakeSequence(client(), "a");
  ASSERT_TRUE(AppendSmall(client(), {.name = "a"}, 0, 40).ok());
  AttendRequest read = ReadRequest("a");
  AttendRequest sent = SentRequest(40);
  for (AttendRequest* request : {&read, &sent}) {
    request->causal = Causal::kBottomRight;
    request->window_left = 20;
    request->softcap = 5;
    request->return_weights = true;
  }
  ExpectSame(client().Attend(read), client().Attend(sent));
}

// Tensors that are sent from where they lie.
TEST_F(SequencesTest, LargeTensorsArriveWhole) {
  MakeSequence(client(), "a");
  ASSERT_TRUE(AppendSmall(client(), {.name = "a"}, 0, 3000).ok());
  AttendRequest step = ReadRequest("a", 1);
  step.sequences->append = SmallBatch(3000, 3000);
  ExpectSame(client().Attend(step), client().Attend(SentRequest(6000, 1)));
  ExpectSame(client().Attend(ReadRequest("a")),
             client().Attend(SentRequest(6000)));
}

TEST_F(SequencesTest, AStepAppendsItsKeysAndSeesThem) {
  MakeSequence(client(), "a");
  ASSERT_TRUE(AppendSmall(client(), {.name = "a"}, 0, 40).ok());
  AttendRequest step = ReadRequest("a", 2);
  step.sequences->append = SmallBatch(40, 2);
  step.causal = Causal::kBottomRight;
  AttendRequest sent = SentRequest(42, 2);
  sent.causal = Causal::kBottomRight;
  ExpectSame(client().Attend(step), client().Attend(sent));
  EXPECT_THAT(Lengths("a"), ElementsAre(42));
}

TEST_F(SequencesTest, AStepWithAPositionMayBeRepeated) {
  MakeSequence(client(), "a");
  ASSERT_TRUE(AppendSmall(client(), {.name = "a"}, 0, 40).ok());
  AttendRequest step = ReadRequest("a", 2);
  step.sequences->entries[0].position = 40;
  step.sequences->append = SmallBatch(40, 2);
  ExpectSame(client().Attend(step), client().Attend(step));
  EXPECT_THAT(Lengths("a"), ElementsAre(42));
}

TEST_F(SequencesTest, EntriesOfABatchHaveLengthsOfTheirOwn) {
  for (const auto& [name, count] : {std::pair("a", 40), std::pair("b", 7)}) {
    MakeSequence(client(), name);
    ASSERT_TRUE(AppendSmall(client(), {.name = name}, 0, count).ok());
  }
  AttendRequest both;
  both.query = SmallQuery(3, 2);
  both.sequences = SequenceKeys{.entries = {{.name = "a"}, {.name = "b"}}};
  const auto result = client().Attend(both);
  const auto a = client().Attend(ReadRequest("a"));
  const auto b = client().Attend(ReadRequest("b"));
  ASSERT_TRUE(result.ok() && a.ok() && b.ok()) << result.status();
  std::vector<float> expected = a->output.ToFloats();
  for (const float value : b->output.ToFloats()) expected.push_back(value);
  EXPECT_EQ(result->output.ToFloats(), expected);
}

TEST_F(SequencesTest, LayersHaveKeysOfTheirOwn) {
  MakeSequence(client(), "model", 3);
  ASSERT_TRUE(AppendSmall(client(), {.name = "model", .layer = 2}, 0, 5).ok());
  ASSERT_TRUE(AppendSmall(client(), {.name = "model"}, 5, 3).ok());
  EXPECT_THAT(Lengths("model"), ElementsAre(3, 0, 5));
  AttendRequest request = ReadRequest("model");
  request.sequences->entries[0].layer = 2;
  ExpectSame(client().Attend(request), client().Attend(SentRequest(5)));
  request.sequences->entries[0].layer = 3;
  EXPECT_EQ(client().Attend(request).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(SequencesTest, AnAppendThatIsRepeatedIsAcknowledged) {
  MakeSequence(client(), "a");
  const SequenceLayer at_start = {.name = "a", .position = 0};
  const auto first = AppendSmall(client(), at_start, 0, 10);
  const auto again = AppendSmall(client(), at_start, 0, 10);
  const auto longer = AppendSmall(client(), at_start, 0, 12);
  ASSERT_TRUE(first.ok() && again.ok() && longer.ok()) << again.status();
  EXPECT_EQ(first->new_keys, 10);
  EXPECT_EQ(again->new_keys, 0);
  EXPECT_EQ(again->length, 10);
  EXPECT_EQ(longer->new_keys, 2);
  EXPECT_EQ(longer->length, 12);
}

TEST_F(SequencesTest, OtherKeysAtATakenPositionAreAborted) {
  MakeSequence(client(), "a");
  ASSERT_TRUE(AppendSmall(client(), {.name = "a"}, 0, 10).ok());
  const absl::Status status =
      AppendSmall(client(), {.name = "a", .position = 9}, 0, 1).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("10"));  // the length
}

TEST_F(SequencesTest, AGapIsOutOfRange) {
  MakeSequence(client(), "a");
  const SequenceLayer behind = {.name = "a", .position = 1};
  EXPECT_EQ(AppendSmall(client(), behind, 1, 1).status().code(),
            absl::StatusCode::kOutOfRange);
  AttendRequest step = ReadRequest("a", 1);
  step.sequences->entries[0] = behind;
  step.sequences->append = SmallBatch(1, 1);
  EXPECT_EQ(client().Attend(step).status().code(),
            absl::StatusCode::kOutOfRange);
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

TEST_F(SequencesTest, APositionWithoutKeysToAppendIsRefused) {
  MakeSequence(client(), "a");
  AttendRequest request = ReadRequest("a");
  request.sequences->entries[0].position = 0;
  EXPECT_EQ(client().Attend(request).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// They would be left out without a word.
TEST_F(SequencesTest, KeysBesideSequencesAreRefusedBeforeAnythingIsSent) {
  AttendRequest request = ReadRequest("a");
  request.value = SmallRows(1, 0, 1);
  const absl::Status status = client().Attend(request).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("value: given beside"));
}

TEST_F(SequencesTest, AnAppendOverTheClientsLimitIsNotSent) {
  const auto client =
      Client::Create({.target = "127.0.0.1:1", .max_message_bytes = 1000});
  EXPECT_EQ(AppendSmall(*client, {.name = "a"}, 0, 100).status().code(),
            absl::StatusCode::kResourceExhausted);
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

TEST_F(SequencesTest, AStreamReadsSequences) {
  for (int i = 0; i < 20; ++i) {
    const std::string name = absl::StrCat("s", i);
    MakeSequence(client(), name);
    ASSERT_TRUE(AppendSmall(client(), {.name = name}, 0, i + 1).ok());
  }
  std::vector<AttendRequest> steps;
  for (int i = 0; i < 20; ++i) {
    steps.push_back(ReadRequest(absl::StrCat("s", i), 1));
    steps.back().sequences->append = SmallBatch(i + 1, 1);
  }
  steps.push_back(ReadRequest("no", 1));
  std::vector<absl::StatusOr<AttendResult>> replies(
      steps.size(), absl::UnknownError("no reply"));
  const absl::Status status = client().AttendMany(
      steps, [&](size_t index, absl::StatusOr<AttendResult> reply) {
        replies.at(index) = std::move(reply);
      });
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(replies.back().status().code(), absl::StatusCode::kNotFound);
  for (int i = 0; i < 20; ++i) {
    ExpectSame(replies.at(static_cast<size_t>(i)),
               client().Attend(SentRequest(i + 2, 1)));
  }
}

}  // namespace
}  // namespace attention::client
