#include "server/models/model_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "server/request/tensor_fields.h"
#include "tests/support/model_folders.h"
#include "tests/support/status_matchers.h"

namespace attention::server {
namespace {

using ::attention::test::IsOk;
using ::attention::test::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ModelTableTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folders_.Add("a_set", R"({"scoring": "gaussian"})");
    auto opened = ModelRepository::Open(folders_.path());
    ASSERT_THAT(opened, IsOk());
    repository_ = *std::move(opened);
    table_ = std::make_unique<ModelTable>(*repository_);
  }

  test::ModelFolders folders_;
  std::unique_ptr<ModelRepository> repository_;
  std::unique_ptr<ModelTable> table_;
};

TEST_F(ModelTableTest, HasTheBuiltInModelsAndTheSets) {
  std::vector<std::string> names;
  for (const auto& model : table_->List()) names.push_back(model->name);
  EXPECT_THAT(
      names, ElementsAre("a_set", "additive_attention", "bilinear_attention",
                         "gaussian_attention", "scaled_dot_product_attention"));
}

TEST_F(ModelTableTest, ASetTakesNoParameterInputs) {
  ASSERT_OK_AND_ASSIGN(const auto model, table_->Find("a_set", ""));
  AttentionProblem problem = model->defaults;
  EXPECT_EQ(AcceptedTensors(problem),
            "query, key, value, valid_lens, attend_mask, bias, alibi_slopes, "
            "sinks, query_offsets, query_starts, key_starts, key_scale, "
            "value_scale");
}

TEST_F(ModelTableTest, UnloadingASetFreesItOnceNobodyUsesIt) {
  std::weak_ptr<const ParameterSet> set = *repository_->Find("a_set");
  {
    ASSERT_OK_AND_ASSIGN(const auto model, table_->Find("a_set", "1"));
    ASSERT_THAT(repository_->Unload("a_set"), IsOk());
    EXPECT_FALSE(set.expired());
  }
  EXPECT_TRUE(set.expired());
  EXPECT_THAT(table_->Find("a_set", ""),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("'a_set'")));
}

TEST_F(ModelTableTest, ASetThatIsLoadedAnewCountsOn) {
  ASSERT_OK_AND_ASSIGN(const auto before, table_->Find("a_set", ""));
  ASSERT_THAT(repository_->Load("a_set"), IsOk());
  ASSERT_OK_AND_ASSIGN(const auto after, table_->Find("a_set", ""));
  EXPECT_NE(before->owner, after->owner);
  EXPECT_EQ(before->counters, after->counters);
}

TEST_F(ModelTableTest, VersionsAreTheOneOrNothing) {
  for (const char* version : {"", "1"}) {
    EXPECT_THAT(table_->Find("a_set", version), IsOk());
  }
  EXPECT_THAT(table_->Find("a_set", "2"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("version 2")));
  EXPECT_THAT(table_->Find("a_set", "one"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'one'")));
}

}  // namespace
}  // namespace attention::server
