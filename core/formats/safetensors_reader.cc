#include "core/formats/safetensors_reader.h"

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/formats/file.h"
#include "core/formats/safetensors_names.h"

namespace attention {
namespace {

constexpr int64_t kLengthBytes = 8;
constexpr uint64_t kLongestHeader = 100'000'000;  // the format's own bound

using Entry = std::pair<const std::string, SafetensorsEntry>;

uint64_t LoadLittleEndian64(absl::Span<const std::byte> bytes) {
  uint64_t value = 0;
  for (int64_t i = 0; i < kLengthBytes; ++i) {
    value |= std::to_integer<uint64_t>(bytes[i]) << (8 * i);
  }
  return value;
}

absl::Status ErrorAbout(const Entry& entry, absl::string_view reason) {
  return absl::InvalidArgumentError(
      absl::StrCat(SafetensorsErrorPrefix(entry.first), reason));
}

std::string OffsetsToString(const SafetensorsEntry& entry) {
  return absl::StrCat("data_offsets ", ShapeToString({entry.begin, entry.end}));
}

// The tensors must lie one after the other, from the first byte of the data to
// its last.
absl::Status CheckLayout(const SafetensorsHeader& header, int64_t data_size) {
  std::vector<const Entry*> entries;
  entries.reserve(header.tensors.size());
  for (const Entry& entry : header.tensors) entries.push_back(&entry);
  std::sort(entries.begin(), entries.end(), [](const auto* a, const auto* b) {
    return std::pair(a->second.begin, a->second.end) <
           std::pair(b->second.begin, b->second.end);
  });

  int64_t position = 0;
  for (const Entry* entry : entries) {
    const auto& [begin, end] =
        std::pair(entry->second.begin, entry->second.end);
    const auto error = [entry](const auto&... reason) {
      return ErrorAbout(
          *entry, absl::StrCat(OffsetsToString(entry->second), reason...));
    };
    if (end < begin) return error(" end before they begin");
    if (end > data_size) {
      return error(" run past the end, the file has ", data_size,
                   " bytes of data");
    }
    if (begin != position) {
      return error(begin < position ? " overlap another tensor's"
                                    : " leave a hole before them",
                   ", expected to begin at ", position);
    }
    position = end;
  }
  if (position != data_size) {
    return absl::InvalidArgumentError(
        absl::StrCat("data: ", data_size - position,
                     " bytes at the end belong to no tensor"));
  }
  return absl::OkStatus();
}

// Shape and datatype must need the bytes that the offsets hold.
absl::Status CheckSize(const Entry& named) {
  const SafetensorsEntry& entry = named.second;
  const int64_t size = ByteSize(entry.type);
  const absl::StatusOr<int64_t> count = ElementCount(entry.shape, size);
  if (!count.ok()) return ErrorAbout(named, count.status().message());
  if (*count * size == entry.end - entry.begin) return absl::OkStatus();
  return ErrorAbout(
      named,
      absl::StrCat(OffsetsToString(entry), " hold ", entry.end - entry.begin,
                   " bytes, shape ", ShapeToString(entry.shape), " of ",
                   SafetensorsName(entry.type), " needs ", *count * size));
}

absl::Status WithPrefix(const std::string& prefix, const absl::Status& status) {
  return {status.code(), absl::StrCat(prefix, status.message())};
}

}  // namespace

absl::Status SafetensorsReader::ReadHeader(int64_t size) {
  if (size < kLengthBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("header: the file has ", size,
                     " bytes, the header's length alone takes 8"));
  }
  std::array<std::byte, kLengthBytes> length_bytes{};
  absl::Status status = read_(0, absl::MakeSpan(length_bytes));
  if (!status.ok()) return status;
  const uint64_t length = LoadLittleEndian64(length_bytes);
  const int64_t rest = size - kLengthBytes;
  if (length > kLongestHeader || length > static_cast<uint64_t>(rest)) {
    return absl::InvalidArgumentError(
        absl::StrCat("header: is said to have ", length, " bytes, ", rest,
                     " are left in the file and 100000000 are allowed "
                     "(expected a safetensors file)"));
  }
  std::string text(length, '\0');
  status = read_(kLengthBytes,
                 {reinterpret_cast<std::byte*>(text.data()), text.size()});
  if (!status.ok()) return status;
  absl::StatusOr<SafetensorsHeader> header = ParseSafetensorsHeader(text);
  if (!header.ok()) return header.status();
  header_ = *std::move(header);
  data_begin_ = kLengthBytes + static_cast<int64_t>(length);
  status = CheckLayout(header_, size - data_begin_);
  for (const Entry& entry : header_.tensors) status.Update(CheckSize(entry));
  return status;
}

absl::StatusOr<SafetensorsReader> SafetensorsReader::Open(int64_t size,
                                                          Read read) {
  SafetensorsReader reader(std::move(read));
  if (absl::Status status = reader.ReadHeader(size); !status.ok()) {
    return status;
  }
  return reader;
}

absl::StatusOr<SafetensorsReader> SafetensorsReader::OpenFile(
    const std::string& path) {
  absl::StatusOr<InputFile> opened = InputFile::Open(path);
  if (!opened.ok()) return opened.status();
  const auto file = std::make_shared<const InputFile>(*std::move(opened));
  absl::StatusOr<SafetensorsReader> reader =
      Open(file->size(), [file](int64_t offset, absl::Span<std::byte> bytes) {
        return file->ReadAt(offset, bytes);
      });
  if (reader.ok()) return reader;
  return WithPrefix(absl::StrCat(path, ": "), reader.status());
}

absl::StatusOr<Tensor> SafetensorsReader::ReadTensor(
    const std::string& name) const {
  const SafetensorsEntry& entry = header_.tensors.at(name);
  absl::StatusOr<Tensor> tensor =
      Tensor::CreateUninitialized(entry.type, entry.shape);
  if (!tensor.ok()) {
    return WithPrefix(SafetensorsErrorPrefix(name), tensor.status());
  }
  absl::Status status = ReadBytes(
      name, 0, {tensor->data(), static_cast<size_t>(tensor->byte_size())});
  if (!status.ok()) return status;
  return tensor;
}

absl::Status SafetensorsReader::ReadBytes(const std::string& name,
                                          int64_t offset,
                                          absl::Span<std::byte> bytes) const {
  return read_(data_begin_ + header_.tensors.at(name).begin + offset, bytes);
}

}  // namespace attention
