// The protocol's extension for model repositories, over folders as people have
// them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/service/gated_server.h"
#include "tests/service/infer_requests.h"
#include "tests/service/requests.h"
#include "tests/service/wire_client.h"
#include "tests/service/wrong_input.h"
#include "tests/support/model_folders.h"

namespace attention::test {
namespace {

using absl::StatusCode;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::EndsWith;
using ::testing::Eq;
using ::testing::HasSubstr;
using ::testing::Key;
using ::testing::Not;
using ::testing::Pair;

constexpr int kLoads = 3;
constexpr size_t kPlaces = 64;  // of calls that wait for the repository

class InferenceRepositoryTest : public testing::Test {
 protected:
  // Starts the server; the folders are what was added before.
  WireClient& Client() {
    if (client_ == nullptr) {
      server::ServerOptions options = TestOptions();
      options.model_repository = folders_.path();
      options.allow_model_control = true;
      server_ = StartServer(options);
      client_ = std::make_unique<WireClient>(server_->address());
    }
    return *client_;
  }

  // The reason of every model that is listed, empty where it is ready.
  std::map<std::string, std::string> Index() {
    const auto index = CallInference<inference::RepositoryIndexResponse>(
        Client(), "RepositoryIndex", inference::RepositoryIndexRequest());
    EXPECT_TRUE(index.ok()) << index.status();
    if (!index.ok()) return {};
    std::map<std::string, std::string> reasons;
    for (const auto& model : index->models()) {
      EXPECT_EQ(model.state(), model.reason().empty() ? "READY" : "UNAVAILABLE")
          << model.name();
      reasons.emplace(model.name(), model.reason());
    }
    return reasons;
  }

  // A model that takes long to load: its file's header names so many tensors.
  void AddLargeModel(int count) {
    std::map<std::string, Tensor> tensors;
    for (int n = 0; n < count; ++n) {
      tensors.emplace(absl::StrCat("layer.", n), Tensor::FromFloats({1}, {0}));
    }
    tensors.emplace("m", Tensor::FromFloats({1, 1}, {1}));
    folders_.Add("large",
                 R"({"scoring": "bilinear",
                     "parameters": {"m": {"layout": "input_by_output"}}})",
                 tensors);
  }

  // Begins to load it; what waits for the answer ends with how the call did.
  std::future<absl::Status> StartLoad() {
    inference::RepositoryModelLoadRequest request;
    request.set_model_name("large");
    std::shared_ptr<PendingCall> call = Client().Start(
        InferenceMethod("RepositoryModelLoad"), request.SerializeAsString());
    return std::async(std::launch::async, [this, call] {
      absl::Status status = call->Wait().status();
      ++loads_done_;
      return status;
    });
  }

  std::vector<std::future<absl::Status>> StartLoads() {
    std::vector<std::future<absl::Status>> loads;
    loads.reserve(kLoads);
    for (int n = 0; n < kLoads; ++n) loads.push_back(StartLoad());
    return loads;
  }

  ModelFolders folders_;
  std::unique_ptr<server::Server> server_;
  std::unique_ptr<WireClient> client_;
  std::atomic<int> loads_done_ = 0;
};

TEST_F(InferenceRepositoryTest, ListsFoldersWithNamesThatNoModelCanHave) {
  folders_.Add("good", R"({"scoring": "gaussian"})");
  folders_.Add("n\xffo", "{}");
  folders_.Add("two\nlines", "{}");
  EXPECT_THAT(
      Index(),
      AllOf(Contains(Pair("good", "")),
            Contains(Pair("n\\xffo", HasSubstr("not a model's name"))),
            Contains(Pair("two\\nlines", HasSubstr("not a model's name")))));
}

TEST_F(InferenceRepositoryTest, QuotesFilesThatAreNotUtf8) {
  folders_.Add("broken", "{\"scoring\": \"\xff\"}");
  EXPECT_THAT(Index(), Contains(Pair("broken", HasSubstr("\\xff"))));
}

TEST_F(InferenceRepositoryTest, BoundsTheReason) {
  // Of characters of three bytes, which a cut at 1024 bytes would go through.
  std::string long_name;
  for (int n = 0; n < 10'000; ++n) long_name += "\xe2\x82\xac";
  folders_.Add("broken", R"({"scoring": ")" + long_name);
  const std::string reason = Index()["broken"];
  EXPECT_GT(reason.size(), 1000U);
  EXPECT_LE(reason.size(), 1024U);
  EXPECT_THAT(reason, AllOf(HasSubstr("closing quote"), EndsWith("\xac...")));
}

TEST_F(InferenceRepositoryTest, LoadsWhatCameLaterAndUnloadsIt) {
  Client();
  folders_.Add("late", R"({"scoring": "gaussian"})");
  EXPECT_THAT(Index(), Contains(Pair("late", "not loaded")));
  inference::RepositoryModelLoadRequest load;
  load.set_model_name("late");
  EXPECT_TRUE(CallInference<inference::RepositoryModelLoadResponse>(
                  Client(), "RepositoryModelLoad", load)
                  .ok());
  EXPECT_THAT(Index(), Contains(Pair("late", "")));
  inference::RepositoryModelUnloadRequest unload;
  unload.set_model_name("late");
  EXPECT_TRUE(CallInference<inference::RepositoryModelUnloadResponse>(
                  Client(), "RepositoryModelUnload", unload)
                  .ok());
  EXPECT_THAT(Index(), Contains(Pair("late", "unloaded")));
}

absl::Status Unload(WireClient& client, const std::string& name,
                    const std::string& parameter = "") {
  inference::RepositoryModelUnloadRequest request;
  request.set_model_name(name);
  if (!parameter.empty()) {
    (*request.mutable_parameters())[parameter].set_bool_param(true);
  }
  return CallInference<inference::RepositoryModelUnloadResponse>(
             client, "RepositoryModelUnload", request)
      .status();
}

TEST_F(InferenceRepositoryTest, UnloadsByNoUnknownParameter) {
  folders_.Add("good", R"({"scoring": "gaussian"})");
  ExpectRefusal(Unload(Client(), "good", "gently"), StatusCode::kUnimplemented,
                {"gently: ", "unload_dependents"});
  EXPECT_EQ(Unload(Client(), "good", "unload_dependents"), absl::OkStatus());
}

TEST_F(InferenceRepositoryTest, ABuiltInModelIsNotUnloaded) {
  ExpectRefusal(Unload(Client(), kDotProduct), StatusCode::kInvalidArgument,
                {"model 'scaled_dot_product_attention': ", "built-in"});
}

TEST_F(InferenceRepositoryTest, ThoseThatAreReadyAreListedAlone) {
  folders_.Add("good", R"({"scoring": "gaussian"})");
  folders_.Add("broken", "{}");
  inference::RepositoryIndexRequest request;
  request.set_ready(true);
  const auto index = CallInference<inference::RepositoryIndexResponse>(
      Client(), "RepositoryIndex", request);
  ASSERT_TRUE(index.ok()) << index.status();
  std::map<std::string, std::string> states;
  for (const auto& model : index->models()) {
    states.emplace(model.name(), model.state());
  }
  EXPECT_THAT(states, AllOf(Contains(Pair("good", "READY")),
                            Not(Contains(Key("broken")))));
}

// Told by the order in which calls end: these come after the loads and are all
// answered before the first of them.
TEST_F(InferenceRepositoryTest, OthersAreAnsweredWhileModelsLoad) {
  AddLargeModel(100'000);
  ExpectGoodReply(Client().Attend(GoodRequest()));  // connected from here on
  auto loads = StartLoads();
  for (int n = 0; n < 5; ++n) {
    ExpectGoodReply(Client().Attend(GoodRequest()));
    EXPECT_TRUE(Client().Call(kHealthCheck, "").ok());
  }
  EXPECT_EQ(loads_done_, 0);
  for (auto& load : loads) EXPECT_EQ(load.get(), absl::OkStatus());
}

TEST_F(InferenceRepositoryTest, EveryLoadIsAnsweredWhenTheServerDrains) {
  AddLargeModel(100'000);
  ExpectGoodReply(Client().Attend(GoodRequest()));
  auto loads = StartLoads();
  // All of them have arrived when a call that comes after them is answered.
  ExpectGoodReply(Client().Attend(GoodRequest()));
  EXPECT_TRUE(server_->Drain());
  int turned_away = 0;
  for (auto& load : loads) {
    const absl::Status status = load.get();
    EXPECT_THAT(status.code(),
                AnyOf(Eq(StatusCode::kOk), Eq(StatusCode::kUnavailable)))
        << status;
    turned_away += status.ok() ? 0 : 1;
  }
  EXPECT_GT(turned_away, 0);
}

TEST_F(InferenceRepositoryTest, WhatNobodyWaitsForAnyMoreIsNotDone) {
  AddLargeModel(100'000);
  folders_.Add("small", R"({"scoring": "gaussian"})");
  ExpectGoodReply(Client().Attend(GoodRequest()));
  auto loads = StartLoads();
  inference::RepositoryModelUnloadRequest request;
  request.set_model_name("small");
  const auto unload = Client().Start(InferenceMethod("RepositoryModelUnload"),
                                     request.SerializeAsString());
  // It has arrived when a call that comes after it is answered. It is of a
  // model that nobody loads: whichever of them came first.
  ExpectGoodReply(Client().Attend(GoodRequest()));
  unload->Cancel();
  EXPECT_EQ(unload->Wait().status().code(), StatusCode::kCancelled);
  for (auto& load : loads) EXPECT_EQ(load.get(), absl::OkStatus());
  // Index() waits for its turn, which comes after the unload's.
  EXPECT_THAT(Index(), Contains(Pair("small", "")));
}

TEST_F(InferenceRepositoryTest, FilesAreReadAgainThoughManyWait) {
  AddLargeModel(50'000);
  ExpectGoodReply(Client().Attend(GoodRequest()));
  auto large = StartLoad();
  ExpectGoodReply(Client().Attend(GoodRequest()));
  inference::RepositoryModelLoadRequest request;
  request.set_model_name("nobody");
  std::vector<std::unique_ptr<PendingCall>> waiting;
  waiting.reserve(kPlaces + 1);
  for (size_t n = 0; n < kPlaces + 1; ++n) {
    waiting.push_back(Client().Start(InferenceMethod("RepositoryModelLoad"),
                                     request.SerializeAsString()));
  }
  ExpectGoodReply(Client().Attend(GoodRequest()));
  folders_.Add("late", R"({"scoring": "gaussian"})");
  server_->ReadFilesAgain();
  int refused = 0;
  for (const auto& call : waiting) {
    if (absl::IsResourceExhausted(call->Wait().status())) ++refused;
  }
  EXPECT_GT(refused, 0);
  EXPECT_EQ(large.get(), absl::OkStatus());
  EXPECT_THAT(Index(), Contains(Pair("late", "")));
}

TEST_F(InferenceRepositoryTest, ThereIsRoomForALoadThoughManyAskForTheList) {
  AddLargeModel(50'000);
  ExpectGoodReply(Client().Attend(GoodRequest()));
  auto large = StartLoad();
  ExpectGoodReply(Client().Attend(GoodRequest()));
  std::vector<std::unique_ptr<PendingCall>> lists;
  lists.reserve(kPlaces);
  for (size_t n = 0; n < kPlaces; ++n) {
    lists.push_back(Client().Start(InferenceMethod("RepositoryIndex"), ""));
  }
  ExpectGoodReply(Client().Attend(GoodRequest()));
  inference::RepositoryModelLoadRequest request;
  request.set_model_name("nobody");
  EXPECT_EQ(Client()
                .Call(InferenceMethod("RepositoryModelLoad"),
                      request.SerializeAsString())
                .status()
                .code(),
            StatusCode::kNotFound);
  EXPECT_EQ(large.get(), absl::OkStatus());
}

}  // namespace
}  // namespace attention::test
