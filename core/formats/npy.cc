#include "core/formats/npy.h"

#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "core/formats/file.h"
#include "core/formats/npy_header.h"

namespace attention {
namespace {

constexpr absl::string_view kMagic("\x93NUMPY", 6);
constexpr size_t kVersionBytes = 2;
constexpr size_t kAlignment = 64;  // of the data, as NumPy writes it

struct Parts {
  absl::string_view header;
  absl::string_view data;
};

absl::StatusOr<Parts> Split(absl::string_view text) {
  if (!absl::StartsWith(text, kMagic)) {
    return absl::InvalidArgumentError(
        "magic: the file does not begin with \\x93NUMPY (expected a .npy "
        "file, as numpy.save writes it)");
  }
  text.remove_prefix(kMagic.size());
  if (text.size() < kVersionBytes) {
    return absl::InvalidArgumentError("version: the file ends before it");
  }
  const int major = static_cast<unsigned char>(text[0]);
  const int minor = static_cast<unsigned char>(text[1]);
  if (major < 1 || major > 3 || minor != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "version: ", major, ".", minor, ", expected 1.0, 2.0 or 3.0"));
  }
  text.remove_prefix(kVersionBytes);
  const size_t length_bytes = major == 1 ? 2 : 4;
  if (text.size() < length_bytes) {
    return absl::InvalidArgumentError("header: the file ends before it");
  }
  size_t length = 0;
  for (size_t i = 0; i < length_bytes; ++i) {
    length |= static_cast<size_t>(static_cast<unsigned char>(text[i]))
              << (8 * i);
  }
  text.remove_prefix(length_bytes);
  if (length > text.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("header: is said to have ", length, " bytes, ",
                     text.size(), " are left in the file"));
  }
  return Parts{text.substr(0, length), text.substr(length)};
}

}  // namespace

absl::StatusOr<Tensor> ParseNpy(absl::Span<const std::byte> bytes) {
  const absl::StatusOr<Parts> parts =
      Split({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  if (!parts.ok()) return parts.status();
  absl::StatusOr<NpyHeader> header = ParseNpyHeader(parts->header);
  if (!header.ok()) return header.status();

  const absl::Span<const std::byte> data = bytes.last(parts->data.size());
  // Compares sizes before any memory is asked for.
  const absl::StatusOr<TensorView> view =
      ViewOfBytes("data", header->type, header->shape, data);
  if (!view.ok()) return view.status();
  absl::StatusOr<Tensor> tensor =
      Tensor::Create(header->type, std::move(header->shape));
  if (tensor.ok() && !data.empty()) {
    std::memcpy(tensor->data(), data.data(), data.size());
  }
  return tensor;
}

absl::StatusOr<std::string> SerializeNpy(const Tensor& tensor) {
  const std::optional<absl::string_view> type = NpyName(tensor.type());
  if (!type) {
    return absl::InvalidArgumentError(absl::StrCat(
        "descr: NumPy has no ", Name(tensor.type()), ", convert it to FP32"));
  }
  const Shape& shape = tensor.shape();
  if (shape.size() > kNpyLongestShape) {
    return absl::InvalidArgumentError(absl::StrCat(
        "shape: ", shape.size(), " extents, NumPy has at most 64"));
  }
  std::string header = absl::StrCat(
      "{'descr': '", *type, "', 'fortran_order': False, 'shape': (",
      absl::StrJoin(shape, ", "), shape.size() == 1 ? "," : "", "), }");
  const size_t before = kMagic.size() + kVersionBytes + 2;
  const size_t used = before + header.size() + 1;
  header.append((kAlignment - used % kAlignment) % kAlignment, ' ');
  header.push_back('\n');

  std::string text(kMagic.data(), kMagic.size());
  text.push_back(1);
  text.push_back(0);
  // At most 64 extents of 19 digits: two bytes hold the length.
  text.push_back(static_cast<char>(header.size() & 0xff));
  text.push_back(static_cast<char>(header.size() >> 8));
  text += header;
  const absl::Span<const std::byte> bytes = tensor.bytes();
  text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return text;
}

absl::StatusOr<Tensor> ReadNpy(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFile(path);
  if (!text.ok()) return text.status();
  absl::StatusOr<Tensor> tensor = ParseNpy(
      {reinterpret_cast<const std::byte*>(text->data()), text->size()});
  if (tensor.ok()) return tensor;
  return absl::Status(tensor.status().code(),
                      absl::StrCat(path, ": ", tensor.status().message()));
}

absl::Status WriteNpy(const std::string& path, const Tensor& tensor) {
  const absl::StatusOr<std::string> text = SerializeNpy(tensor);
  if (!text.ok()) {
    return absl::Status(text.status().code(),
                        absl::StrCat(path, ": ", text.status().message()));
  }
  return WriteFile(path, *text);
}

}  // namespace attention
