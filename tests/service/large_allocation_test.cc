// attention-server where a large allocation fails: the request ends alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <ostream>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tests/service/faulty_server.h"
#include "tests/service/http_caller.h"
#include "tests/service/http_infer.h"
#include "tests/service/infer_requests.h"
#include "tests/service/large_requests.h"
#include "tests/service/requests.h"
#include "tests/service/running_server.h"
#include "tests/service/sequences_fixture.h"
#include "tests/service/wire_client.h"
#include "tests/support/faults/planned_faults.h"

namespace attention::test {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

// What asks the server, in one of its ways.
struct Way {
  const char* name;
  std::function<absl::Status(const RunningServer&, WireClient&)> ask;
  // Before the first time, where memory is to be had.
  std::function<void(WireClient&, const std::string& folder)> prepare =
      [](WireClient&, const std::string&) {};
};

void PrintTo(const Way& way, std::ostream* out) { *out << way.name; }

class LargeAllocationTest : public FaultyServerTest,
                            public testing::WithParamInterface<Way> {};

// Each of them in turn, until there is none left that fails.
TEST_P(LargeAllocationTest, ThatFailsEndsTheRequestAlone) {
  ASSERT_NO_FATAL_FAILURE(Start({"--resident-folder", folder_.path(),
                                 "--model-repository", folder_.path()}));
  GetParam().prepare(*client_, folder_.path());
  ASSERT_EQ(GetParam().ask(server_, *client_), absl::OkStatus());
  plan().large_bytes = kLarge;
  Faults& allocations = plan().large_allocations;
  constexpr int kMost = 200;
  int n = 0;
  for (; n < kMost; ++n) {
    const int64_t before = allocations.failed;
    allocations.skip = n;
    allocations.fail = 1;
    const absl::Status status = GetParam().ask(server_, *client_);
    allocations.fail = 0;
    ExpectGoodReply(client_->Attend(GoodRequest()));
    if (allocations.failed == before) {
      EXPECT_TRUE(status.ok()) << status;
      break;
    }
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_THAT(std::string(status.message()),
                AnyOf(HasSubstr("no memory"), HasSubstr("out of memory")));
    if (HasFailure()) break;
  }
  EXPECT_GE(n, 3);
  EXPECT_LT(n, kMost);
  server_.process->Signal(SIGTERM);
  EXPECT_EQ(server_.process->Wait(), 0);
}

// The list of its layers is large, and of the first two the list of pages, as
// is what is read of their file at once.
void MakeSequence(WireClient& client, const std::string& /*folder*/) {
  constexpr int64_t kKeys = 18'432;
  constexpr int64_t kWidth = 32;
  v1::CreateSequencesRequest request = CreateRequest({"s"});
  v1::SequenceForm& form = *request.mutable_sequences(0)->mutable_form();
  form.set_key_width(kWidth);
  form.set_value_width(kWidth);
  form.set_layers(1024);
  EXPECT_EQ(
      client.Call(kService + "Create", request.SerializeAsString()).status(),
      absl::OkStatus());
  v1::AppendRequest append;
  append.set_name("s");
  *append.mutable_key() = Filled(v1::DATA_TYPE_FP32, {1, kKeys, kWidth}, 1);
  *append.mutable_value() = append.key();
  for (int64_t layer = 0; layer < 2; ++layer) {
    append.set_layer(layer);
    EXPECT_EQ(
        client.Call(kService + "Append", append.SerializeAsString()).status(),
        absl::OkStatus());
  }
}

absl::Status Export(WireClient& client) {
  v1::ExportSequenceRequest request;
  request.set_name("s");
  request.set_file("s");
  return client.Call(kService + "Export", request.SerializeAsString()).status();
}

// And deletes it again. There is none of its name where it failed.
absl::Status Import(WireClient& client) {
  v1::ImportSequenceRequest request;
  request.set_file("s");
  request.set_name("t");
  const absl::Status status =
      client.Call(kService + "Import", request.SerializeAsString()).status();
  v1::DeleteSequencesRequest remove;
  remove.add_names("t");
  const auto removed =
      client.Call(kService + "Delete", remove.SerializeAsString());
  v1::DeleteSequencesResponse response;
  EXPECT_TRUE(removed.ok() && response.ParseFromString(*removed));
  EXPECT_EQ(response.deleted(), status.ok() ? 1 : 0);
  return status;
}

// So many folders that a list of their names is large.
void MakeModels(WireClient& /*client*/, const std::string& folder) {
  for (int n = 0; n < 2200; ++n) {
    std::filesystem::create_directory(absl::StrCat(folder, "/m", n));
  }
}

// A list where true or false is expected, which is parsed before it is refused.
absl::Status AskForTheModels(const RunningServer& server) {
  std::string body = R"({"ready":[1)";
  for (int i = 0; i < 30'000; ++i) body += ",1";
  body += "]}";
  return StatusOfAnswer(
      HttpPost(server.http_address, "/v2/repository/index", body), 400);
}

INSTANTIATE_TEST_SUITE_P(
    Ways, LargeAllocationTest,
    testing::Values(
        Way{"Attend",
            [](const RunningServer&, WireClient& client) {
              return client.Attend(RequestOfLargeTensors()).status();
            }},
        Way{"AttendStream",
            [](const RunningServer&, WireClient& client) {
              return AskOnAStream(client);
            }},
        Way{"TypedContents",
            [](const RunningServer&, WireClient& client) {
              auto request = ToInfer(RequestOfLargeTensors());
              UseTypedContents(request);
              return Infer(client, request).status();
            }},
        Way{"Http", [](const RunningServer& server,
                       WireClient&) { return AskOverHttp(server); }},
        Way{"Export",
            [](const RunningServer&, WireClient& client) {
              return Export(client);
            },
            MakeSequence},
        Way{"Import",
            [](const RunningServer&, WireClient& client) {
              return Import(client);
            },
            [](WireClient& client, const std::string& folder) {
              MakeSequence(client, folder);
              EXPECT_EQ(Export(client), absl::OkStatus());
            }},
        Way{"ModelIndex",
            [](const RunningServer& server, WireClient&) {
              return StatusOfAnswer(
                  HttpPost(server.http_address, "/v2/repository/index", "{}"),
                  200);
            },
            MakeModels}),
    [](const auto& way) { return static_cast<std::string>(way.param.name); });

using JsonOverHttpTest = FaultyServerTest;

// Parsing it takes at least one of these allocations.
TEST_F(JsonOverHttpTest, ALongKeyIsNotParsedForEachArrayBehindIt) {
  ASSERT_NO_FATAL_FAILURE(Start());
  constexpr int kArrays = 16'000;
  std::string body =
      absl::StrCat(R"({"\u0041)", std::string(30'000, 'a'), R"(":[{)");
  for (int i = 0; i < kArrays; ++i) body += "[]";
  plan().large_bytes = 16 << 10;
  Faults& allocations = plan().large_allocations;
  constexpr int64_t kMany = 1 << 30;  // none fails, each is counted
  allocations.skip = kMany;
  allocations.fail = 1;
  EXPECT_EQ(HttpStatus(HttpPost(server_.http_address, kInferPath, body)), 400);
  EXPECT_LT(kMany - allocations.skip, kArrays / 16);
}

// It is parsed on a thread of its own, with a list that grows in steps.
TEST_F(JsonOverHttpTest, WhereThereIsNoMemoryToParseItEndsTheRequestAlone) {
  ASSERT_NO_FATAL_FAILURE(Start());
  ASSERT_EQ(AskForTheModels(server_), absl::OkStatus());
  plan().large_bytes = kLarge;
  Faults& allocations = plan().large_allocations;
  for (const int step : {0, 1, 2}) {
    allocations.skip = step;
    allocations.fail = 1;
    const absl::Status status = AskForTheModels(server_);
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_EQ(allocations.failed, step + 1);
  }
  EXPECT_EQ(AskForTheModels(server_), absl::OkStatus());
  server_.process->Signal(SIGTERM);
  EXPECT_EQ(server_.process->Wait(), 0);
}

using FilesAgainTest = FaultyServerTest;

TEST_F(FilesAgainTest, WithoutMemoryForTheListOfModelsTheyStayAsTheyWere) {
  ASSERT_NO_FATAL_FAILURE(Start({"--model-repository", folder_.path()}));
  MakeModels(*client_, folder_.path());
  plan().large_bytes = kLarge;
  plan().large_allocations.fail = 1;
  server_.process->Signal(SIGHUP);
  EXPECT_THAT(server_.process->ReadLineWith("models stay as they were"),
              HasSubstr("out of memory"));
  ExpectGoodReply(client_->Attend(GoodRequest()));
}

using SequenceCallTest = FaultyServerTest;

// Those that are not computed with are read on gRPC's threads.
TEST_F(SequenceCallTest, WithoutMemoryForItsMessageEndsAlone) {
  ASSERT_NO_FATAL_FAILURE(Start({"--resident-folder", folder_.path()}));
  v1::TruncateRequest truncate;
  truncate.set_name(std::string(200 << 10, 'n'));
  truncate.set_length(0);
  v1::ExportSequenceRequest out;
  out.set_name(truncate.name());
  out.set_file("s");
  plan().large_bytes = kLarge;
  Faults& allocations = plan().large_allocations;
  for (const auto& [method, message] :
       {std::pair("Truncate", truncate.SerializeAsString()),
        std::pair("Export", out.SerializeAsString())}) {
    const auto ask = [&] {
      return client_->Call(kService + method, message).status().code();
    };
    EXPECT_EQ(ask(), absl::StatusCode::kNotFound) << method;
    allocations.fail = 1;
    EXPECT_EQ(ask(), absl::StatusCode::kResourceExhausted) << method;
    EXPECT_EQ(allocations.fail, 0);
  }
}

using InferenceCallTest = FaultyServerTest;

// One that is answered at once, and one that may wait for its turn; fields that
// are not known are kept in a list.
TEST_F(InferenceCallTest, WithoutMemoryForItsMessageSaysWhenToTryAgain) {
  ASSERT_NO_FATAL_FAILURE(Start());
  std::string message;
  for (int n = 0; n < 30'000; ++n) message += std::string("x\0", 2);
  plan().large_bytes = kLarge;
  Faults& allocations = plan().large_allocations;
  for (const char* method : {"ServerMetadata", "RepositoryIndex"}) {
    const auto ask = [&] {
      return client_
          ->Call(absl::StrCat("/inference.GRPCInferenceService/", method),
                 message)
          .status();
    };
    EXPECT_EQ(ask(), absl::OkStatus()) << method;
    allocations.fail = 1;
    const absl::Status refused = ask();
    EXPECT_EQ(allocations.fail, 0) << method;
    EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
    EXPECT_TRUE(SaysWhenToTryAgain(refused)) << refused;
  }
}

}  // namespace
}  // namespace attention::test
