#include "server/models/model_repository.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "tests/support/model_folders.h"
#include "tests/support/status_matchers.h"

namespace attention::server {
namespace {

using ::attention::test::IsOk;
using ::attention::test::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::string GaussianOf(double sigma) {
  return R"({"scoring": "gaussian", "options": {"sigma": )" +
         std::to_string(sigma) + "}}";
}

class ModelRepositoryTest : public ::testing::Test {
 protected:
  void Open() {
    auto opened = ModelRepository::Open(folders_.path());
    ASSERT_THAT(opened, IsOk());
    repository_ = *std::move(opened);
  }
  // "name READY", "name UNAVAILABLE reason".
  std::vector<std::string> Index() const {
    std::vector<std::string> lines;
    for (const ModelIndexEntry& entry : repository_->Index()) {
      lines.push_back(entry.name + (entry.state == ModelState::kReady
                                        ? " READY"
                                        : " UNAVAILABLE " + entry.reason));
    }
    return lines;
  }
  double SigmaOf(const std::string& name) const {
    const auto set = repository_->Find(name);
    EXPECT_THAT(set, IsOk());
    return std::get<Gaussian>((*set)->defaults.scoring).sigma;
  }

  test::ModelFolders folders_;
  std::unique_ptr<ModelRepository> repository_ =
      std::make_unique<ModelRepository>();
};

TEST_F(ModelRepositoryTest, LoadsEveryFolder) {
  folders_.Add("b", GaussianOf(2));
  folders_.Add("a", GaussianOf(1));
  Open();
  EXPECT_EQ(Index(), (std::vector<std::string>{"a READY", "b READY"}));
  EXPECT_EQ(SigmaOf("b"), 2);
}

TEST_F(ModelRepositoryTest, OneThatIsBrokenDoesNotStopTheOthers) {
  folders_.Add("broken", "{}");
  folders_.Add("whole", GaussianOf(1));
  Open();
  ASSERT_EQ(Index().size(), 2);
  EXPECT_THAT(Index()[0], AllOf(HasSubstr("broken UNAVAILABLE"),
                                HasSubstr("config.json: scoring: missing"),
                                Not(HasSubstr(folders_.path()))));
  EXPECT_EQ(Index()[1], "whole READY");
  EXPECT_THAT(repository_->Find("broken"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("'broken'")));
}

TEST_F(ModelRepositoryTest, WithoutADirectoryHasNothing) {
  EXPECT_THAT(Index(), IsEmpty());
  EXPECT_THAT(repository_->Find("a"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("none")));
  EXPECT_THAT(repository_->Load("a"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("'a'")));
}

TEST_F(ModelRepositoryTest, ADirectoryThatIsNotThereIsAnError) {
  EXPECT_THAT(
      ModelRepository::Open(folders_.path() + "/none"),
      StatusIs(absl::StatusCode::kNotFound, HasSubstr(folders_.path())));
}

TEST_F(ModelRepositoryTest, PassesOverFilesAndHiddenFolders) {
  folders_.Add(".git", "{}");
  Open();
  EXPECT_THAT(Index(), IsEmpty());
}

TEST_F(ModelRepositoryTest, FoldersCannotTakeABuiltInModelsName) {
  folders_.Add("gaussian_attention", GaussianOf(1));
  Open();
  EXPECT_THAT(Index(), IsEmpty());
  EXPECT_THAT(
      repository_->Load("gaussian_attention"),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("built-in")));
}

// It would have the series of requests without a model.
TEST_F(ModelRepositoryTest, NoneIsCalledUnknown) {
  folders_.Add("unknown", GaussianOf(1));
  Open();
  EXPECT_THAT(
      repository_->Load("unknown"),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("metrics count")));
  EXPECT_THAT(repository_->Find("unknown"), Not(IsOk()));
}

TEST_F(ModelRepositoryTest, NamesAreRestricted) {
  folders_.Add("my model", GaussianOf(1));
  Open();
  ASSERT_EQ(Index().size(), 1);
  EXPECT_THAT(Index()[0], HasSubstr("UNAVAILABLE model 'my model': not a"));
  for (const std::string& name :
       {std::string(), std::string("../models"), std::string("a/b"),
        std::string("."), std::string("a\0b", 3), std::string(129, 'a')}) {
    EXPECT_THAT(repository_->Load(name),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("not a model's name")));
  }
  EXPECT_THAT(repository_->Load(std::string(129, 'a')),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr(std::string(128, 'a') + "...'")));
}

TEST_F(ModelRepositoryTest, AnUnknownNameListsTheKnownOnes) {
  folders_.Add("a", GaussianOf(1));
  folders_.Add("b", GaussianOf(1));
  Open();
  EXPECT_THAT(repository_->Find("c"),
              StatusIs(absl::StatusCode::kNotFound,
                       AllOf(HasSubstr("'c'"), HasSubstr("a, b"))));
}

TEST_F(ModelRepositoryTest, LoadsAFolderThatCameLater) {
  Open();
  folders_.Add("late", GaussianOf(3));
  EXPECT_EQ(Index(), std::vector<std::string>{"late UNAVAILABLE not loaded"});
  EXPECT_THAT(repository_->Load("late"), IsOk());
  EXPECT_EQ(SigmaOf("late"), 3);
}

TEST_F(ModelRepositoryTest, LoadsAllThatThereIsNowAndUnloadsTheRest) {
  folders_.Add("a", GaussianOf(1));
  folders_.Add("gone", GaussianOf(1));
  Open();
  folders_.Add("a", GaussianOf(2));
  folders_.Add("late", GaussianOf(3));
  folders_.Remove("gone");
  EXPECT_THAT(repository_->LoadAll(), IsOk());
  EXPECT_EQ(Index(), (std::vector<std::string>{"a READY", "late READY"}));
  EXPECT_EQ(SigmaOf("a"), 2);
}

TEST_F(ModelRepositoryTest, ReadsAFolderAnewAndLeavesUsersTheirSet) {
  folders_.Add("a", GaussianOf(1));
  Open();
  ASSERT_OK_AND_ASSIGN(const auto held, repository_->Find("a"));
  folders_.Add("a", GaussianOf(2));
  EXPECT_EQ(SigmaOf("a"), 1);
  ASSERT_THAT(repository_->Load("a"), IsOk());
  EXPECT_EQ(SigmaOf("a"), 2);
  EXPECT_EQ(std::get<Gaussian>(held->defaults.scoring).sigma, 1);
}

TEST_F(ModelRepositoryTest, WhatWasReadyStaysSoWhereLoadingAgainFails) {
  folders_.Add("a", GaussianOf(1));
  Open();
  folders_.Add("a", "{}");
  EXPECT_THAT(repository_->Load("a"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("model 'a': config.json: scoring")));
  EXPECT_EQ(Index(), std::vector<std::string>{"a READY"});
  EXPECT_EQ(SigmaOf("a"), 1);
}

TEST_F(ModelRepositoryTest, ARepairedFolderLoads) {
  folders_.Add("a", "{}");
  Open();
  folders_.Add("a", GaussianOf(1));
  EXPECT_THAT(repository_->Load("a"), IsOk());
  EXPECT_EQ(Index(), std::vector<std::string>{"a READY"});
}

TEST_F(ModelRepositoryTest, ASetInUseOutlivesItsUnloading) {
  folders_.Add("a", R"({"scoring": "bilinear",
                        "parameters": {"m": {"layout": "input_by_output"}}})",
               {{"m", Tensor::FromFloats({1, 2}, {3, 4})}});
  Open();
  ASSERT_OK_AND_ASSIGN(const auto held, repository_->Find("a"));
  ASSERT_THAT(repository_->Unload("a"), IsOk());
  EXPECT_EQ(Index(), std::vector<std::string>{"a UNAVAILABLE unloaded"});
  EXPECT_THAT(repository_->Find("a"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("'a'")));
  EXPECT_EQ(held->tensors.at("m").ToFloats(), (std::vector<float>{3, 4}));
  EXPECT_THAT(repository_->Load("a"), IsOk());
}

TEST_F(ModelRepositoryTest, WhatIsNotLoadedCannotBeUnloaded) {
  folders_.Add("broken", "{}");
  Open();
  for (const char* name : {"broken", "unknown"}) {
    EXPECT_THAT(repository_->Unload(name),
                StatusIs(absl::StatusCode::kNotFound, HasSubstr(name)));
  }
}

TEST_F(ModelRepositoryTest, ForgetsAnUnloadedFolderThatIsGone) {
  folders_.Add("a", GaussianOf(1));
  Open();
  folders_.Remove("a");
  EXPECT_EQ(Index(), std::vector<std::string>{"a READY"});
  ASSERT_THAT(repository_->Unload("a"), IsOk());
  EXPECT_THAT(Index(), IsEmpty());
}

TEST_F(ModelRepositoryTest, UsersAndLoadingMeetSafely) {
  folders_.Add("a", GaussianOf(1));
  Open();
  std::atomic<bool> stop = false;
  std::thread user([&] {
    while (!stop) {
      const auto set = repository_->Find("a");
      if (set.ok()) {
        EXPECT_EQ(std::get<Gaussian>((*set)->defaults.scoring).sigma, 1);
      }
    }
  });
  for (int i = 0; i < 50; ++i) {
    EXPECT_THAT(repository_->Unload("a"), IsOk());
    EXPECT_THAT(repository_->Load("a"), IsOk());
  }
  stop = true;
  user.join();
}

}  // namespace
}  // namespace attention::server
