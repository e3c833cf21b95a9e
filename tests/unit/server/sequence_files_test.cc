#include "server/request/sequence_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "core/datatype.h"
#include "core/store/store.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/store/rows.h"

namespace attention::server {
namespace {

using store::testing::Rows;
using store::testing::SmallForm;
using test::IsOk;
using test::StatusIs;

class SequenceFilesTest : public ::testing::Test {
 protected:
  void SetUp() override { MakeIn(store_); }

  // A sequence "a" of 18 KB with keys in each of two layers.
  void MakeIn(store::Store& store, DataType type = DataType::kFloat32) const {
    store::SequenceForm form = SmallForm(2);
    form.type = type;
    ASSERT_THAT(store.Create("", {form, "a", "", std::nullopt}, now_), IsOk());
    const Rows rows(form, 0, 100, 1);
    for (const int64_t layer : {0, 1}) {
      ASSERT_THAT(
          store.Append("", "a", layer, std::nullopt, rows.block(), now_),
          IsOk());
    }
  }

  const store::Time now_ = store::Clock::now();
  store::Store store_{store::StoreOptions{}};
  const test::TemporaryFolder folder_;
  const SequenceFilePlace file_{folder_.path() + "/a.safetensors", "a"};
};

TEST_F(SequenceFilesTest, NoSequenceIsLeftOfAFileThatIsNotReadToItsEnd) {
  const auto go_on = [] { return absl::OkStatus(); };
  ASSERT_THAT(ExportSequence(store_, "", "a", file_, go_on), IsOk());
  const store::NewSequence wanted{{}, "b", "", std::nullopt};
  int pieces = 0;
  const auto stop = [&] {
    return ++pieces < 2 ? absl::OkStatus() : absl::CancelledError("enough");
  };
  EXPECT_THAT(
      ImportSequence(store_, "", file_, wanted, stop),
      StatusIs(absl::StatusCode::kCancelled, ::testing::HasSubstr("enough")));
  EXPECT_EQ(pieces, 2);
  EXPECT_THAT(store_.Describe("", "b", now_),
              StatusIs(absl::StatusCode::kNotFound, ::testing::_));
  EXPECT_THAT(ImportSequence(store_, "", file_, wanted, go_on), IsOk());
}

absl::Status GoOnAlways() { return absl::OkStatus(); }

TEST_F(SequenceFilesTest, WhatTheStoreRefusesIsNotSaidOfTheFile) {
  ASSERT_THAT(ExportSequence(store_, "", "a", file_, GoOnAlways), IsOk());
  store::Store small{store::StoreOptions{.memory_limit = 24 << 10}};
  MakeIn(small);
  const store::NewSequence wanted{{}, "b", "", std::nullopt};
  EXPECT_THAT(ImportSequence(small, "", file_, wanted, GoOnAlways),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       ::testing::StartsWith("no memory for a sequence of")));
  // There was room when it began.
  ASSERT_THAT(small.Delete("", "a"), IsOk());
  const auto take_room = [&] {
    MakeIn(small);
    return absl::OkStatus();
  };
  EXPECT_THAT(ImportSequence(small, "", file_, wanted, take_room),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       ::testing::StartsWith("no memory for 2 pages")));
}

// Room for a part of it would be made, and be of no use.
TEST_F(SequenceFilesTest, WhereAllThatMayGoDoNotSufficeForAFileNobodyGoes) {
  ASSERT_THAT(ExportSequence(store_, "", "a", file_, GoOnAlways), IsOk());
  store::Store full{
      store::StoreOptions{.memory_limit = 32 << 10, .evict = true}};
  MakeIn(full);
  const auto held = full.Find("", "a", now_);
  store::NewSequence other{SmallForm(1), "other", "", std::nullopt};
  ASSERT_THAT(full.Create("", other, now_), IsOk());
  ASSERT_THAT(
      full.Append("", "other", 0, 0, Rows(SmallForm(), 0, 64, 1).block(), now_),
      IsOk());
  const store::NewSequence wanted{{}, "b", "", std::nullopt};
  EXPECT_THAT(ImportSequence(full, "", file_, wanted, GoOnAlways),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       ::testing::StartsWith("no memory for a sequence of")));
  EXPECT_THAT(full.Describe("", "other", now_), IsOk());
}

TEST_F(SequenceFilesTest, AFileFitsWhereItsKeysDoAndElseDrivesNobodyOut) {
  store::Store measured{store::StoreOptions{}};
  ASSERT_THAT(measured.Create("", {SmallForm(), "a", "", std::nullopt}, now_),
              IsOk());
  // In one piece; the file is read in several, with which a table would grow.
  const Rows rows(SmallForm(), 0, int64_t{64} * 65, 1);
  ASSERT_THAT(measured.Append("", "a", 0, std::nullopt, rows.block(), now_),
              IsOk());
  ASSERT_THAT(ExportSequence(measured, "", "a", file_, GoOnAlways), IsOk());
  for (const std::string name : {"b", ""}) {
    // One that the store makes has 32 letters, and is kept twice.
    const int64_t enough =
        measured.budget().held() + (name.empty() ? 2 * 31 : 0);
    for (const int64_t missing : {0, 1}) {
      store::Store store{
          store::StoreOptions{.memory_limit = enough - missing, .evict = true}};
      ASSERT_THAT(
          store.Create("", {SmallForm(), "other", "", std::nullopt}, now_),
          IsOk());
      const store::NewSequence wanted{{}, name, "", std::nullopt};
      const auto made = ImportSequence(store, "", file_, wanted, GoOnAlways);
      EXPECT_EQ(made.ok(), missing == 0) << made.status();
      EXPECT_EQ(store.Describe("", "other", now_).ok(), missing == 1);
    }
  }
}

TEST_F(SequenceFilesTest, RowsThatNoSequenceTakesAreSaidOfTheFile) {
  store::Store store{store::StoreOptions{}};
  MakeIn(store, DataType::kInt8);
  ASSERT_THAT(ExportSequence(store, "", "a", file_, GoOnAlways), IsOk());
  std::fstream file(file_.path,
                    std::ios::binary | std::ios::in | std::ios::out);
  uint64_t header = 0;  // its bytes; scales come behind it, first of all
  file.read(reinterpret_cast<char*>(&header), sizeof(header));
  const float nan = std::nanf("");
  file.seekp(static_cast<std::streamoff>(sizeof(header) + header));
  file.write(reinterpret_cast<const char*>(&nan), sizeof(nan));
  file.close();
  const store::NewSequence wanted{{}, "b", "", std::nullopt};
  EXPECT_THAT(ImportSequence(store, "", file_, wanted, GoOnAlways),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       ::testing::StartsWith("file: key_scale: nan")));
}

TEST_F(SequenceFilesTest, ASequenceThatIsDeletedWhileItIsReadIsAborted) {
  ASSERT_THAT(ExportSequence(store_, "", "a", file_, GoOnAlways), IsOk());
  const store::NewSequence wanted{{}, "b", "", std::nullopt};
  const auto remove = [&] {
    store_.Delete("", "b").IgnoreError();
    return absl::OkStatus();
  };
  EXPECT_THAT(
      ImportSequence(store_, "", file_, wanted, remove),
      StatusIs(absl::StatusCode::kAborted, ::testing::HasSubstr("'b'")));
}

TEST_F(SequenceFilesTest, ASequenceThatIsTruncatedWhileItIsReadIsAborted) {
  ASSERT_THAT(store_.Create("", {SmallForm(), "long", "", std::nullopt}, now_),
              IsOk());
  // It is read in two pieces.
  const Rows rows(SmallForm(), 0, 1025, 1);
  ASSERT_THAT(store_.Append("", "long", 0, 0, rows.block(), now_), IsOk());
  ASSERT_THAT(ExportSequence(store_, "", "long", file_, GoOnAlways), IsOk());
  const store::NewSequence wanted{{}, "b", "", std::nullopt};
  const auto cut = [&] { return store_.Truncate("", "b", 0, now_); };
  EXPECT_THAT(ImportSequence(store_, "", file_, wanted, cut),
              StatusIs(absl::StatusCode::kAborted,
                       "sequence 'b' was truncated while its file was read"));
}

// The next layer's keys begin at 0, too: no gap tells of it.
TEST_F(SequenceFilesTest, ASequenceThatIsTruncatedBetweenLayersIsAborted) {
  ASSERT_THAT(ExportSequence(store_, "", "a", file_, GoOnAlways), IsOk());
  const store::NewSequence wanted{{}, "b", "", std::nullopt};
  int pieces = 0;
  const auto cut = [&] {
    return ++pieces == 2 ? store_.Truncate("", "b", 0, now_) : absl::OkStatus();
  };
  EXPECT_THAT(ImportSequence(store_, "", file_, wanted, cut),
              StatusIs(absl::StatusCode::kAborted,
                       "sequence 'b' was truncated while its file was read"));
  EXPECT_EQ(pieces, 2);
  EXPECT_THAT(store_.Describe("", "b", now_),
              StatusIs(absl::StatusCode::kNotFound, ::testing::_));
}

TEST_F(SequenceFilesTest, ASequenceIsInUseUntilItsExportEnds) {
  constexpr std::chrono::minutes kLimit{1};
  store::NewSequence wanted{SmallForm(1), "b", "", kLimit};
  ASSERT_THAT(store_.Create("", wanted, now_), IsOk());
  store::Time written = now_;
  const auto note = [&] {
    written = store::Clock::now();
    return absl::OkStatus();
  };
  ASSERT_THAT(ExportSequence(store_, "", "b", file_, note), IsOk());
  EXPECT_EQ(store_.Expire(written + kLimit).sequences, 0);
}

TEST_F(SequenceFilesTest, AFileThatTheServerMayNotReadIsNoMissingRight) {
  if (geteuid() == 0) GTEST_SKIP() << "root may read every file";
  ASSERT_THAT(ExportSequence(store_, "", "a", file_, GoOnAlways), IsOk());
  ASSERT_EQ(chmod(file_.path.c_str(), 0), 0);
  const store::NewSequence wanted{{}, "b", "", std::nullopt};
  EXPECT_THAT(ImportSequence(store_, "", file_, wanted, GoOnAlways),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       ::testing::HasSubstr("file: 'a'")));
}

TEST_F(SequenceFilesTest, AFolderThatIsGoneIsNoSequenceThatIsNotThere) {
  const SequenceFilePlace file{folder_.path() + "/gone/a.safetensors", "a"};
  EXPECT_THAT(ExportSequence(store_, "", "a", file, GoOnAlways),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       ::testing::HasSubstr("file: 'a'")));
  EXPECT_THAT(
      ExportSequence(store_, "", "nobody", file, GoOnAlways),
      StatusIs(absl::StatusCode::kNotFound, ::testing::HasSubstr("'nobody'")));
}

}  // namespace
}  // namespace attention::server
