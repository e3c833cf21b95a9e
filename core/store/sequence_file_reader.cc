#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "core/formats/safetensors_names.h"
#include "core/store/page_list.h"
#include "core/store/sequence_file.h"
#include "core/store/sequence_file_names.h"

namespace attention::store {
namespace {

// What is read at a time, and of many small rows the number of keys.
constexpr int64_t kReadBytes = int64_t{16} << 20;
constexpr int64_t kReadKeys = 1024;

int64_t KeysAtATime(const SequenceForm& form) {
  int64_t key_bytes =
      form.heads * (form.key_width + form.value_width) * ByteSize(form.type);
  if (IsScaledType(form.type)) {
    key_bytes += form.heads * 2 * ByteSize(DataType::kFloat32);
  }
  return std::clamp<int64_t>(kReadBytes / key_bytes, 1, kReadKeys);
}

absl::Status Wrong(absl::string_view field, absl::string_view had,
                   absl::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat(
      field, ": '", SafetensorsPrintable(had), "' (expected: ", expected, ")"));
}

absl::Status WrongTensor(const std::string& name, absl::string_view reason) {
  return absl::InvalidArgumentError(
      absl::StrCat(SafetensorsErrorPrefix(name), reason));
}

std::string Unexpected(const SafetensorsEntry& entry,
                       const SequencePart& part) {
  const std::string width =
      part.shape.size() == 3 ? absl::StrCat(", ", part.shape[2]) : "";
  return absl::StrCat(Name(entry.type), " of shape ",
                      ShapeToString(entry.shape),
                      " (expected: ", Name(part.type), " of [", part.shape[0],
                      ", n", width, "])");
}

}  // namespace

absl::StatusOr<SequenceFileReader> SequenceFileReader::Open(
    SafetensorsReader file) {
  SequenceFileReader reader(std::move(file));
  absl::Status status = reader.ReadForm();
  if (status.ok()) status = reader.ReadLengths();
  if (!status.ok()) return status;
  return reader;
}

absl::Status SequenceFileReader::ReadForm() {
  const auto& metadata = file_.header().metadata;
  absl::Status status;
  const auto text = [&](const std::string& field) -> absl::string_view {
    const auto found = metadata.find(field);
    return found == metadata.end() ? absl::string_view() : found->second;
  };
  const auto must_be = [&](const std::string& field,
                           absl::string_view expected) {
    if (text(field) != expected) {
      status.Update(
          Wrong(field, text(field), absl::StrCat("'", expected, "'")));
    }
  };
  const auto number = [&](const std::string& field, int64_t& value) {
    if (!absl::SimpleAtoi(text(field), &value)) {
      status.Update(Wrong(field, text(field), "a number"));
    }
  };
  must_be("format", kSequenceFormat);
  must_be("version", kSequenceVersion);
  number("heads", form_.heads);
  number("key_width", form_.key_width);
  number("value_width", form_.value_width);
  number("layers", form_.layers);
  const std::optional<DataType> type = DataTypeFromName(text("datatype"));
  if (!type) status.Update(Wrong("datatype", text("datatype"), "FP32, ..."));
  form_.type = type.value_or(DataType::kFloat32);
  status.Update(CheckForm(form_));
  return status;
}

absl::Status SequenceFileReader::ReadLengths() {
  const auto& tensors = file_.header().tensors;
  std::set<std::string> known;
  lengths_.assign(static_cast<size_t>(form_.layers), 0);
  std::vector<SequencePart> parts = PartsOf(form_);
  for (SequencePart& part : parts) {
    known.insert(part.name);
    const auto found = tensors.find(part.name);
    if (found == tensors.end()) return WrongTensor(part.name, "is missing");
    const Shape& shape = found->second.shape;
    if (shape.size() == part.shape.size() && shape[1] <= PageList::kMostKeys) {
      part.shape[1] = shape[1];
    }
    if (found->second.type != part.type || shape != part.shape) {
      return WrongTensor(part.name, Unexpected(found->second, part));
    }
    if (part.name == absl::StrCat(kKeys, part.layer)) {
      lengths_[static_cast<size_t>(part.layer)] = shape[1];
    }
  }
  for (const SequencePart& part : parts) {
    const int64_t length = lengths_[static_cast<size_t>(part.layer)];
    if (part.shape[1] != length) {
      return WrongTensor(
          part.name, absl::StrCat(part.shape[1], " rows, key has ", length));
    }
  }
  for (const auto& [name, entry] : tensors) {
    if (!known.contains(name)) return WrongTensor(name, "is not of a sequence");
  }
  const std::string lengths = absl::StrJoin(lengths_, " ");
  const auto said = file_.header().metadata.find("lengths");
  if (said == file_.header().metadata.end() || said->second != lengths) {
    return absl::InvalidArgumentError(
        "lengths: others than the tensors have (expected: the second extent of "
        "each layer's)");
  }
  return absl::OkStatus();
}

absl::StatusOr<Tensor> SequenceFileReader::ReadRows(const std::string& name,
                                                    int64_t first,
                                                    int64_t count) const {
  const SafetensorsEntry& entry = file_.header().tensors.at(name);
  const int64_t length = entry.shape[1];
  const int64_t width = entry.shape.size() == 3 ? entry.shape[2] : 1;
  const int64_t row_bytes = width * ByteSize(entry.type);
  Shape shape = entry.shape;
  shape[1] = count;
  absl::StatusOr<Tensor> rows = Tensor::CreateUninitialized(entry.type, shape);
  if (!rows.ok() || row_bytes == 0) return rows;
  for (int64_t head = 0; head < entry.shape[0]; ++head) {
    absl::Status status =
        file_.ReadBytes(name, (head * length + first) * row_bytes,
                        {rows->data() + head * count * row_bytes,
                         static_cast<size_t>(count * row_bytes)});
    if (!status.ok()) return status;
  }
  return rows;
}

absl::Status SequenceFileReader::Read(
    absl::FunctionRef<absl::Status(int64_t, int64_t, const KeyValueBlock&)>
        append) const {
  const int64_t most = KeysAtATime(form_);
  for (int64_t layer = 0; layer < form_.layers; ++layer) {
    const int64_t length = lengths_[static_cast<size_t>(layer)];
    for (int64_t first = 0; first < length; first += most) {
      const int64_t count = std::min(most, length - first);
      const absl::StatusOr<Rows> rows = ReadBlock(layer, first, count);
      if (!rows.ok()) return rows.status();
      absl::Status status = append(layer, first, rows->block);
      if (!status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<SequenceFileReader::Rows> SequenceFileReader::ReadBlock(
    int64_t layer, int64_t first, int64_t count) const {
  Rows rows;
  absl::Status status;
  const auto read = [&](absl::string_view name) {
    absl::StatusOr<Tensor> tensor =
        ReadRows(absl::StrCat(name, layer), first, count);
    status.Update(tensor.status());
    if (!tensor.ok()) return TensorView();
    return rows.tensors.emplace_back(*std::move(tensor)).view();
  };
  rows.block = {read(kKeys), read(kValues)};
  if (IsScaledType(form_.type)) {
    rows.block.key_scale = read(kKeyScales);
    rows.block.value_scale = read(kValueScales);
  }
  if (!status.ok()) return status;
  return rows;
}

}  // namespace attention::store
