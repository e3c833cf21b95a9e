#include "server/shards/shard_answer.h"

#include <cstddef>
#include <cstdint>

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

}  // namespace

absl::Status MergeAnswers(absl::Span<ShardAnswer> answers, HoldBytes hold) {
  std::vector<Result>& merged = answers.front().results;
  for (const ShardAnswer& answer : answers.subspan(1)) {
    if (absl::Status fits = Check(answer, merged); !fits.ok()) return fits;
  }
  std::vector<ShardRow> rows;
  for (ShardAnswer& answer : answers) rows.push_back(FirstRow(answer));
  const Result& output = merged[kOutput];
  const int64_t width = output.shape.back();
  const int64_t row_bytes = width * ByteSize(output.type);
  const auto count = merged[kLse].bytes / static_cast<int64_t>(sizeof(float));
  ShardMerger merger(output.type, width);
  std::byte* to_output = merged[kOutput].buffer.data();
  std::byte* to_lse = merged[kLse].buffer.data();
  const int64_t bytes_at_once =
      (row_bytes + int64_t{sizeof(float)}) * static_cast<int64_t>(rows.size());
  ReadingPauses pauses(hold);
  for (int64_t row = 0; row < count; ++row) {
    absl::Status status = pauses.At(row * bytes_at_once);
    if (!status.ok()) return status;
    merger.Merge(rows, to_output, to_lse);
    to_output += row_bytes;
    to_lse += sizeof(float);
    for (ShardRow& of : rows) {
      of.output += row_bytes;
      of.lse += sizeof(float);
    }
  }
  return absl::OkStatus();
}

}  // namespace attention::server
