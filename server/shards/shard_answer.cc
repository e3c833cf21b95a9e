#include "server/shards/shard_answer.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "core/shard_merge.h"
#include "server/wire/data_types.h"

namespace attention::server {
namespace {

// Their places in a part's results.
constexpr size_t kOutput = 0;
constexpr size_t kLse = 1;

absl::Status Differs(const ShardAnswer& answer, const char* name,
                     absl::string_view had, const Result& expected) {
  return absl::InvalidArgumentError(
      absl::StrCat("shard: ", answer.whose, " answers with ", name, " ", had,
                   " (expected ", Name(expected.type), " ",
                   ShapeToString(expected.shape), ", as of parts[0])"));
}

absl::Status CheckPart(const ShardAnswer& answer, size_t which,
                       const char* name, const Result& expected) {
  const Result& result = answer.results[which];
  if (result.type == expected.type && result.shape == expected.shape) {
    return absl::OkStatus();
  }
  return Differs(
      answer, name,
      absl::StrCat(Name(result.type), " ", ShapeToString(result.shape)),
      expected);
}

absl::Status CheckTensor(const ShardAnswer& answer, const v1::Tensor& tensor,
                         const char* name, const Result& expected) {
  if (tensor.datatype() == ToWire(expected.type) &&
      Shape(tensor.shape().begin(), tensor.shape().end()) == expected.shape &&
      static_cast<int64_t>(tensor.data().size()) == expected.bytes) {
    return absl::OkStatus();
  }
  return Differs(answer, name,
                 absl::StrCat(v1::DataType_Name(tensor.datatype()), " ",
                              ShapeToString(Shape(tensor.shape().begin(),
                                                  tensor.shape().end())),
                              " in ", tensor.data().size(), " bytes"),
                 expected);
}

absl::Status Check(const ShardAnswer& answer,
                   const std::vector<Result>& expected) {
  const Result& output = expected[kOutput];
  const Result& lse = expected[kLse];
  if (!answer.results.empty()) {
    absl::Status status = CheckPart(answer, kOutput, "output", output);
    if (status.ok()) status = CheckPart(answer, kLse, "lse", lse);
    return status;
  }
  absl::Status status =
      CheckTensor(answer, answer.reply.output(), "output", output);
  if (status.ok()) status = CheckTensor(answer, answer.reply.lse(), "lse", lse);
  return status;
}

ShardRow FirstRow(ShardAnswer& answer) {
  if (!answer.results.empty()) {
    return {answer.results[kOutput].buffer.data(),
            answer.results[kLse].buffer.data()};
  }
  return {
      reinterpret_cast<const std::byte*>(answer.reply.output().data().data()),
      reinterpret_cast<const std::byte*>(answer.reply.lse().data().data())};
}

// Merges row after row, a wide one in parts, with a pause for each MiB.
class RowMerger {
 public:
  RowMerger(DataType type, int64_t width, HoldBytes hold)
      : element_bytes_(ByteSize(type)),
        width_(width),
        merger_(type),
        pauses_(hold) {}

  // Moves all of them on to the next row.
  absl::Status Merge(absl::Span<ShardRow> rows, std::byte*& output,
                     std::byte*& lse) {
    const auto count = static_cast<int64_t>(rows.size());
    const int64_t most = std::max<int64_t>(1, kAtOnce / count / element_bytes_);
    // It may be that of one of the rows, which all parts need.
    std::array<std::byte, sizeof(float)> of_row{};
    int64_t left = width_;
    do {
      absl::Status status = pauses_.At(done_);
      if (!status.ok()) return status;
      const int64_t columns = std::min(left, most);
      merger_.Merge(rows, columns, output, of_row.data());
      const int64_t bytes = columns * element_bytes_;
      output += bytes;
      for (ShardRow& of : rows) of.output += bytes;
      done_ += bytes * count;
      left -= columns;
    } while (left > 0);
    std::memcpy(lse, of_row.data(), of_row.size());
    lse += of_row.size();
    for (ShardRow& of : rows) of.lse += of_row.size();
    done_ += static_cast<int64_t>(of_row.size()) * count;
    return absl::OkStatus();
  }

 private:
  static constexpr int64_t kAtOnce = 1 << 20;  // bytes of all rows together

  const int64_t element_bytes_;
  const int64_t width_;
  ShardMerger merger_;
  ReadingPauses pauses_;
  int64_t done_ = 0;  // bytes
};

}  // namespace

absl::Status MergeAnswers(absl::Span<ShardAnswer> answers, HoldBytes hold) {
  std::vector<Result>& merged = answers.front().results;
  for (const ShardAnswer& answer : answers.subspan(1)) {
    if (absl::Status fits = Check(answer, merged); !fits.ok()) return fits;
  }
  std::vector<ShardRow> rows;
  for (ShardAnswer& answer : answers) rows.push_back(FirstRow(answer));
  const Result& output = merged[kOutput];
  const auto count = merged[kLse].bytes / static_cast<int64_t>(sizeof(float));
  RowMerger merger(output.type, output.shape.back(), hold);
  std::byte* to_output = merged[kOutput].buffer.data();
  std::byte* to_lse = merged[kLse].buffer.data();
  for (int64_t row = 0; row < count; ++row) {
    absl::Status status = merger.Merge(absl::MakeSpan(rows), to_output, to_lse);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace attention::server
