// Keys and values that stay: KeyValueService, its callers and its limits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/service/callers_of_test.h"
#include "tests/service/gated_server.h"
#include "tests/service/requests.h"
#include "tests/service/sequences_fixture.h"
#include "tests/service/wire_client.h"
#include "tests/service/wrong_input.h"
#include "tests/support/temporary_folder.h"

namespace attention::test {
namespace {

using absl::StatusCode;

TEST_F(SequencesTest, ErrorsOfNamesSayWhichOneOfTheRequest) {
  Start();
  ExpectRefusal(Create({"a", "b b"}).status(), StatusCode::kInvalidArgument,
                {"sequences[1]: name: 'b b'"});
  ASSERT_EQ(Create({"a"}).status(), absl::OkStatus());
  ExpectRefusal(Create({"c", "a"}).status(), StatusCode::kAlreadyExists,
                {"sequences[1]: name: there is a sequence 'a'"});
  v1::ForkRequest fork;
  fork.set_name("a");
  fork.set_new_name("a");
  ExpectRefusal(Call<v1::ForkResponse>("Fork", fork).status(),
                StatusCode::kAlreadyExists,
                {"new_name: there is a sequence 'a'"});
}

// One that is dropped could have been what the caller relies on.
TEST_F(SequencesTest, UnknownFieldsAreRefusedAlsoWithinOthers) {
  Make("s", 10);
  const auto refused = [&](const std::string& method,
                           const google::protobuf::MessageLite& request,
                           const std::string& message) {
    ExpectRefusal(
        client_->Call(method, request.SerializeAsString()).status(),
        StatusCode::kInvalidArgument,
        {absl::StrCat("field 99 of ", message, " is unknown to this server")});
  };
  const auto add_field_99 = [](google::protobuf::Message& message) {
    message.GetReflection()->MutableUnknownFields(&message)->AddVarint(99, 1);
  };
  v1::ForkRequest fork;
  fork.set_name("s");
  fork.set_new_name("f");
  add_field_99(fork);
  refused(kService + "Fork", fork, "ForkRequest");
  EXPECT_EQ(LengthOf("f"), -1);
  v1::CreateSequencesRequest in_sequence = CreateRequest({"a", "b"});
  add_field_99(*in_sequence.mutable_sequences(1));
  refused(kService + "Create", in_sequence, "NewSequence");
  v1::CreateSequencesRequest in_form = CreateRequest({"a"});
  add_field_99(*in_form.mutable_sequences(0)->mutable_form());
  refused(kService + "Create", in_form, "SequenceForm");
  EXPECT_EQ(LengthOf("a"), -1);
  v1::GetServerInfoRequest info;
  add_field_99(info);
  refused("/attention.v1.AttentionService/GetServerInfo", info,
          "GetServerInfoRequest");
}

TEST_F(SequencesTest, AForkGoesItsOwnWay) {
  Make("s", 100);
  v1::ForkRequest fork;
  fork.set_name("s");
  fork.set_length(60);
  fork.set_new_name("f");
  ASSERT_EQ(Call<v1::ForkResponse>("Fork", fork).status(), absl::OkStatus());
  ASSERT_EQ(Append(AppendOf("s", 0, 5))->length(), 105);
  EXPECT_EQ(Append(AppendOf("f", 60, 3))->length(), 63);
  ExpectSameAnswer(OnSequences(Query(), {"f"}), WithKeys(Query(), 63));
}

TEST_F(SequencesTest, WhileTheServerDrainsNoneIsMade) {
  Start();
  Make("s", 10);
  gate_.CloseAt(1);
  const auto pending =
      client_->Start(kAttend, OnSequences(Query(), {"s"}).SerializeAsString());
  gate_.WaitUntilHolding();
  auto drained =
      std::async(std::launch::async, [this] { return server_->Drain(); });
  StatusCode appended = StatusCode::kOk;
  for (int tries = 0; tries < 10'000 && appended == StatusCode::kOk; ++tries) {
    appended = Append(AppendOf("s", 10, 1)).status().code();
  }
  EXPECT_EQ(appended, StatusCode::kUnavailable);
  ExpectRefusal(Create({"new"}).status(), StatusCode::kUnavailable,
                {"the server is draining"});
  v1::ForkRequest fork;
  fork.set_name("s");
  ExpectRefusal(Call<v1::ForkResponse>("Fork", fork).status(),
                StatusCode::kUnavailable, {"the server is draining"});
  gate_.Open();
  EXPECT_EQ(pending->Wait().status(), absl::OkStatus());
  EXPECT_TRUE(drained.get());
}

TEST_F(SequencesTest, ListsPageByPage) {
  ASSERT_EQ(Create({"a", "b", "c"}).status(), absl::OkStatus());
  v1::ListSequencesRequest request;
  request.set_page_size(2);
  auto page = Call<v1::ListSequencesResponse>("List", request);
  ASSERT_EQ(page.status(), absl::OkStatus());
  ASSERT_EQ(page->sequences_size(), 2);
  EXPECT_EQ(page->sequences(1).name(), "b");
  request.set_page_token(page->next_page_token());
  page = Call<v1::ListSequencesResponse>("List", request);
  ASSERT_EQ(page->sequences_size(), 1);
  EXPECT_EQ(page->sequences(0).name(), "c");
  EXPECT_EQ(page->next_page_token(), "");
}

TEST_F(SequencesTest, AFileBringsASequenceBack) {
  TemporaryFolder files;
  server::ServerOptions options = TestOptions();
  options.resident_folder = files.path();
  Start(options);
  Make("s", 100);
  v1::ExportSequenceRequest out;
  out.set_name("s");
  out.set_file("s.safetensors");
  const auto written = Call<v1::ExportSequenceResponse>("Export", out);
  ASSERT_EQ(written.status(), absl::OkStatus());
  EXPECT_GT(written->bytes(), 1600U);
  v1::ImportSequenceRequest in;
  in.set_file("s.safetensors");
  in.set_name("t");
  const auto read = Call<v1::ImportSequenceResponse>("Import", in);
  ASSERT_EQ(read.status(), absl::OkStatus());
  EXPECT_EQ(read->lengths(0), 100);
  ExpectSameAnswer(OnSequences(Query(), {"t"}), OnSequences(Query(), {"s"}));
  out.set_file("../s");
  ExpectRefusal(Call<v1::ExportSequenceResponse>("Export", out).status(),
                StatusCode::kInvalidArgument, {"file: '../s'"});
  in.set_file("none");
  ExpectRefusal(Call<v1::ImportSequenceResponse>("Import", in).status(),
                StatusCode::kNotFound, {"file: 'none'"});
}

TEST_F(SequencesTest, WithoutAFolderThereAreNoFiles) {
  Make("s", 1);
  v1::ExportSequenceRequest out;
  out.set_name("s");
  out.set_file("f");
  ExpectRefusal(Call<v1::ExportSequenceResponse>("Export", out).status(),
                StatusCode::kFailedPrecondition,
                {"file: this server has no folder", "--resident-folder"});
}

TEST_F(SequencesTest, OthersDoNotSeeACallersSequences) {
  TemporaryFolder files;
  server::ServerOptions options = TestOptions();
  options.callers_file = files.path() + "/callers.json";
  std::ofstream(options.callers_file)
      << CallersText(CallerEntry("a", "a") + "," + CallerEntry("b", "b"));
  std::filesystem::permissions(options.callers_file,
                               std::filesystem::perms::owner_read);
  server_ = StartServer(options);
  client_ = std::make_unique<WireClient>(server_->address(), "Bearer a");
  Make("s", 10);
  WireClient other(server_->address(), "Bearer b");
  ExpectRefusal(other.Attend(OnSequences(Query(), {"s"})).status(),
                StatusCode::kNotFound,
                {"sequences.entries[0]: there is no sequence 's'"});
  EXPECT_EQ(
      other.Call(kService + "Create", CreateRequest({"s"}).SerializeAsString())
          .status(),
      absl::OkStatus());
  EXPECT_EQ(Attend(OnSequences(Query(), {"s"})).status(), absl::OkStatus());
}

server::ServerOptions SmallDimensions() {
  server::ServerOptions options = TestOptions();
  options.max_dimension = 100;
  return options;
}

TEST_F(SequencesTest, AnAppendOfMoreThanADimensionMayHaveIsRefused) {
  Start(SmallDimensions());
  ASSERT_EQ(Create({"a"}).status(), absl::OkStatus());
  ExpectRefusal(Append(AppendOf("a", 0, 101)).status(),
                StatusCode::kResourceExhausted,
                {"key: shape [1, 101, 2]", "at most 100, max_dimension"});
  EXPECT_EQ(Append(AppendOf("a", 0, 100)).status(), absl::OkStatus());
}

// A sequence may grow beyond it, and is then not read.
TEST_F(SequencesTest, ARequestReadsNoMoreKeysThanADimensionMayHave) {
  Start(SmallDimensions());
  Make("a", 100);
  const v1::AttendRequest query = OnSequences(Query(), {"a"});
  EXPECT_EQ(Attend(query).status(), absl::OkStatus());
  const std::vector<std::string> refusal = {"key: shape [1, 101, 2]",
                                            "at most 100, max_dimension"};
  ExpectRefusal(Attend(AndAppend(query, 100, 1)).status(),
                StatusCode::kResourceExhausted, refusal);
  EXPECT_EQ(Append(AppendOf("a", 100, 1)).status(), absl::OkStatus());
  ExpectRefusal(Attend(query).status(), StatusCode::kResourceExhausted,
                refusal);
}

}  // namespace
}  // namespace attention::test
