#include "core/store/sequence_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "core/formats/safetensors.h"
#include "core/store/sequence.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/store/rows.h"

namespace {

thread_local bool folders_cannot_be_synced = false;

}  // namespace

// In place of the C library's.
extern "C" int fsync(int file) {
  struct stat facts {};
  if (folders_cannot_be_synced && ::fstat(file, &facts) == 0 &&
      S_ISDIR(facts.st_mode)) {
    errno = EIO;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_fsync, file));
}

namespace attention::store {
namespace {

using test::IsOk;
using test::StatusIs;
using ::testing::AllOf;
using testing::AppendRows;
using ::testing::HasSubstr;
using testing::MakeSequence;
using testing::SmallForm;
using testing::Tags;
using testing::TagsOf;

class StoreFileTest : public ::testing::Test {
 protected:
  static absl::Status Write(const Sequence& sequence, const std::string& path) {
    const auto layers = sequence.TakeSnapshots();
    if (!layers.ok()) return layers.status();
    return WriteSequenceFile(sequence.form(), *layers, path,
                             [] { return absl::OkStatus(); });
  }
  static absl::StatusOr<SequenceFileReader> Open(const std::string& path) {
    auto file = SafetensorsReader::OpenFile(path);
    if (!file.ok()) return file.status();
    return SequenceFileReader::Open(*std::move(file));
  }
  // What Open() says of the file once `change` has spoiled it.
  template <typename Change>
  absl::Status Spoiled(const Change& change) const {
    EXPECT_THAT(Write(*MakeSequence(SmallForm(2)), path_), IsOk());
    SafetensorsFile file = ReadSafetensors(path_).value();
    change(file);
    EXPECT_THAT(WriteSafetensors(path_, file), IsOk());
    return Open(path_).status();
  }

  const test::TemporaryFolder folder_;
  const std::string path_ = folder_.path() + "/sequence.safetensors";
};

TEST_F(StoreFileTest, ComesBackAsItWas) {
  for (const DataType type : {DataType::kFloat32, DataType::kBFloat16,
                              DataType::kInt8, DataType::kFloat8}) {
    SequenceForm form = SmallForm(12);
    form.type = type;
    const auto sequence = MakeSequence(form);
    ASSERT_THAT(AppendRows(*sequence, 2500, 1, 0), IsOk());
    ASSERT_THAT(AppendRows(*sequence, 100, 2, 2), IsOk());
    ASSERT_THAT(AppendRows(*sequence, 64, 3, 10), IsOk());
    ASSERT_THAT(Write(*sequence, path_), IsOk());

    ASSERT_OK_AND_ASSIGN(const SequenceFileReader reader, Open(path_));
    EXPECT_EQ(reader.form(), form);
    EXPECT_EQ(reader.lengths(), sequence->Lengths());
    const auto again = MakeSequence(reader.form());
    const auto append = [&](int64_t layer, int64_t position,
                            const KeyValueBlock& rows) {
      return again->Append(layer, position, rows).status();
    };
    ASSERT_THAT(reader.Read(append), IsOk());
    EXPECT_EQ(TagsOf(*again, 0), Tags({{2500, 1}}));
    EXPECT_EQ(TagsOf(*again, 1), Tags({}));
    EXPECT_EQ(TagsOf(*again, 2), Tags({{100, 2}}));
    EXPECT_EQ(TagsOf(*again, 10), Tags({{64, 3}}));
  }
}

TEST_F(StoreFileTest, OthersCanReadIt) {
  const auto sequence = MakeSequence(SmallForm(2));
  ASSERT_THAT(AppendRows(*sequence, 70, 1, 1), IsOk());
  ASSERT_THAT(Write(*sequence, path_), IsOk());
  ASSERT_OK_AND_ASSIGN(const SafetensorsFile file, ReadSafetensors(path_));
  EXPECT_EQ(file.tensors.size(), 4U);
  EXPECT_EQ(file.tensors.at("key.0").shape(), Shape({2, 0, 3}));
  EXPECT_EQ(file.tensors.at("key.1").shape(), Shape({2, 70, 3}));
  EXPECT_EQ(file.tensors.at("value.1").shape(), Shape({2, 70, 5}));
  const testing::Rows rows(SmallForm(), 0, 70, 1);
  EXPECT_EQ(std::memcmp(file.tensors.at("value.1").data(),
                        rows.block().value.data, size_t{2} * 70 * 5 * 4),
            0);
  EXPECT_EQ(file.metadata.at("format"), "attention-sequence");
  EXPECT_EQ(file.metadata.at("lengths"), "0 70");
  EXPECT_EQ(file.metadata.at("datatype"), "FP32");
}

TEST_F(StoreFileTest, ScalesLieBesideTheirKeys) {
  SequenceForm form = SmallForm();
  form.type = DataType::kFloat8;
  const auto sequence = MakeSequence(form);
  ASSERT_THAT(AppendRows(*sequence, 70, 1), IsOk());
  ASSERT_THAT(Write(*sequence, path_), IsOk());
  ASSERT_OK_AND_ASSIGN(const SafetensorsFile file, ReadSafetensors(path_));
  EXPECT_EQ(file.tensors.size(), 4U);
  EXPECT_EQ(file.tensors.at("key.0").type(), DataType::kFloat8);
  const Tensor& scales = file.tensors.at("key_scale.0");
  EXPECT_EQ(scales.shape(), Shape({2, 70}));
  const testing::Rows rows(form, 0, 70, 1);
  EXPECT_EQ(std::memcmp(scales.data(), rows.block().key_scale->data,
                        scales.bytes().size()),
            0);
  EXPECT_EQ(file.metadata.at("datatype"), "FP8");
}

TEST_F(StoreFileTest, WhatCannotBeWrittenLeavesNothing) {
  const auto sequence = MakeSequence();
  EXPECT_THAT(Write(*sequence, folder_.path() + "/none/x"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/none/x")));
  // A folder of that name cannot be replaced by a file.
  std::filesystem::create_directories(path_ + "/x");
  EXPECT_FALSE(Write(*sequence, path_).ok());
  for (const auto& entry :
       std::filesystem::directory_iterator(folder_.path())) {
    EXPECT_EQ(entry.path(), path_);
  }
}

TEST_F(StoreFileTest, SaysThatItIsWrittenWhereOnlyItsNameMayBeLost) {
  ASSERT_THAT(Write(*MakeSequence(), path_), IsOk());
  const auto sequence = MakeSequence();
  ASSERT_THAT(AppendRows(*sequence, 100, 1), IsOk());
  folders_cannot_be_synced = true;
  const absl::Status status = Write(*sequence, path_);
  folders_cannot_be_synced = false;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(path_ + ": is written, and may be lost"),
                    HasSubstr("Input/output error")));
  ASSERT_OK_AND_ASSIGN(const SequenceFileReader reader, Open(path_));
  EXPECT_EQ(reader.lengths(), std::vector<int64_t>{100});
}

TEST_F(StoreFileTest, NothingIsLeftOfOneThatDoesNotGoOn) {
  const auto sequence = MakeSequence();
  ASSERT_THAT(AppendRows(*sequence, 100, 1), IsOk());
  ASSERT_OK_AND_ASSIGN(const auto layers, sequence->TakeSnapshots());
  int pieces = 0;
  EXPECT_THAT(WriteSequenceFile(sequence->form(), layers, path_,
                                [&pieces] {
                                  return ++pieces < 3
                                             ? absl::OkStatus()
                                             : absl::CancelledError("enough");
                                }),
              StatusIs(absl::StatusCode::kCancelled, "enough"));
  EXPECT_EQ(pieces, 3);
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

TEST_F(StoreFileTest, WantsASnapshotOfEveryLayer) {
  EXPECT_THAT(WriteSequenceFile(SmallForm(2), {}, path_,
                                [] { return absl::OkStatus(); }),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("layers: 0 (expected: 2)")));
}

TEST_F(StoreFileTest, RefusesFilesThatAreNoSequence) {
  const auto refused = [](const std::string& text) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text));
  };
  const auto metadata = [this](const std::string& field,
                               const std::string& value) {
    return Spoiled(
        [&](SafetensorsFile& file) { file.metadata[field] = value; });
  };
  EXPECT_THAT(Spoiled([](SafetensorsFile&) {}), IsOk());
  EXPECT_THAT(Spoiled([](SafetensorsFile& file) { file.metadata.clear(); }),
              refused("format: '' (expected: 'attention-sequence')"));
  EXPECT_THAT(metadata("version", "2"), refused("version: '2'"));
  EXPECT_THAT(metadata("heads", "two"), refused("heads: 'two'"));
  EXPECT_THAT(metadata("heads", "0"), refused("heads: 0"));
  EXPECT_THAT(metadata("layers", "1"),
              refused("tensor \"key.1\": is not of a sequence"));
  EXPECT_THAT(metadata("layers", "3"), refused("\"key.2\": is missing"));
  EXPECT_THAT(metadata("layers", "1000000000000"), refused("layers: 1000"));
  EXPECT_THAT(metadata("datatype", "FP4"), refused("datatype: 'FP4'"));
  EXPECT_THAT(metadata("datatype", "INT4"), refused("datatype: 'INT4'"));
  EXPECT_THAT(metadata("datatype", "INT16"),
              refused("datatype: INT16 (expected"));
  EXPECT_THAT(metadata("datatype", "FP8"),
              refused("\"key_scale.0\": is missing"));
  EXPECT_THAT(metadata("datatype", "BF16"), refused("\"key.0\": FP32 of"));
  EXPECT_THAT(metadata("lengths", "0 1"), refused("lengths: others"));
  const auto replaced = [this](const std::string& name, const Shape& shape) {
    return Spoiled([&](SafetensorsFile& file) {
      file.tensors[name] = Tensor::Create(DataType::kFloat32, shape).value();
    });
  };
  EXPECT_THAT(replaced("value.1", {2, 1, 5}), refused("1 rows, key has 0"));
  EXPECT_THAT(replaced("key.0", {2, 0, 4}), refused("shape [2, 0, 4]"));
  EXPECT_THAT(replaced("key.0", {0, 3}), refused("shape [0, 3]"));
}

}  // namespace
}  // namespace attention::store
