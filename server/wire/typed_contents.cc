#include "server/wire/typed_contents.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "inference/grpc_service.pb.h"

namespace attention::server {
namespace {

namespace pb = google::protobuf;
using inference::InferTensorContents;
using pb::internal::WireFormatLite;

// Of floats that are read at once, in bytes.
constexpr int kFloatsAtOnce = 1 << 20;

// The field that has a type's elements; 0 where the protocol has none.
int FieldOf(DataType type) {
  switch (type) {
    case DataType::kBool:
      return InferTensorContents::kBoolContentsFieldNumber;
    case DataType::kInt8:
    case DataType::kInt32:
      return InferTensorContents::kIntContentsFieldNumber;
    case DataType::kInt64:
      return InferTensorContents::kInt64ContentsFieldNumber;
    case DataType::kUint8:
      return InferTensorContents::kUintContentsFieldNumber;
    case DataType::kFloat32:
      return InferTensorContents::kFp32ContentsFieldNumber;
    default:
      return 0;
  }
}

class ContentsReader {
 public:
  ContentsReader(absl::string_view input, DataType type, int64_t count,
                 AlignedBuffer& buffer, HoldBytes hold)
      : input_(input),
        type_(type),
        field_(FieldOf(type)),
        count_(count),
        buffer_(buffer),
        pauses_(hold) {}

  absl::Status ReadPiece(absl::Span<const std::byte> bytes) {
    pb::io::CodedInputStream in(reinterpret_cast<const uint8_t*>(bytes.data()),
                                static_cast<int>(bytes.size()));
    const int whole = static_cast<int>(bytes.size());
    const auto limit = in.PushLimit(whole);
    while (in.BytesUntilLimit() > 0) {
      if (absl::Status status = Pause(in); !status.ok()) return status;
      const uint32_t tag = in.ReadTag();
      if (tag == 0) return Malformed();
      absl::Status status = ReadField(in, tag);
      if (!status.ok()) return status;
    }
    in.PopLimit(limit);
    before_ += whole;
    return absl::OkStatus();
  }

  absl::Status Done() const {
    if (read_ == count_) return absl::OkStatus();
    return Error(
        absl::StrCat(read_, " elements (its shape needs ", count_, ")"));
  }

 private:
  // Others may run within it, and the request may be stopped.
  absl::Status Pause(const pb::io::CodedInputStream& in) {
    return pauses_.At(before_ + in.CurrentPosition());
  }

  absl::Status ReadField(pb::io::CodedInputStream& in, uint32_t tag) {
    const int number = WireFormatLite::GetTagFieldNumber(tag);
    const auto wire_type = WireFormatLite::GetTagWireType(tag);
    const auto single = type_ == DataType::kFloat32
                            ? WireFormatLite::WIRETYPE_FIXED32
                            : WireFormatLite::WIRETYPE_VARINT;
    if (number >= 1 &&
        number <= InferTensorContents::kBytesContentsFieldNumber &&
        number != field_) {
      return Error(absl::StrCat("contents are in field ", number,
                                " of InferTensorContents (", Name(type_),
                                " is in field ", field_, ")"));
    }
    if (number == field_ && wire_type == single) return ReadElement(in);
    if (number == field_ &&
        wire_type == WireFormatLite::WIRETYPE_LENGTH_DELIMITED) {
      return ReadPacked(in);
    }
    if (number == field_) {
      return Error(absl::StrCat("wire type ", static_cast<int>(wire_type),
                                " is not that of ", Name(type_), " contents"));
    }
    return Error(absl::StrCat("field ", number,
                              " of InferTensorContents is unknown to this "
                              "server"));
  }

  absl::Status ReadPacked(pb::io::CodedInputStream& in) {
    uint32_t size = 0;
    if (!in.ReadVarint32(&size) ||
        size > static_cast<uint32_t>(in.BytesUntilLimit())) {
      return Malformed();
    }
    if (type_ == DataType::kFloat32) return ReadFloats(in, size);
    const auto limit = in.PushLimit(static_cast<int>(size));
    while (in.BytesUntilLimit() > 0) {
      absl::Status status = Pause(in);
      if (status.ok()) status = ReadElement(in);
      if (!status.ok()) return status;
    }
    in.PopLimit(limit);
    return absl::OkStatus();
  }

  // On the wire they are what they are in memory: little-endian.
  absl::Status ReadFloats(pb::io::CodedInputStream& in, uint32_t size) {
    if (size % sizeof(float) != 0) return Malformed();
    const auto count = static_cast<int64_t>(size / sizeof(float));
    if (count > count_ - read_) return TooMany();
    for (int left = static_cast<int>(size); left > 0;) {
      const int part = std::min(left, kFloatsAtOnce);
      if (!in.ReadRaw(Next(), part)) return Malformed();
      read_ += part / static_cast<int>(sizeof(float));
      left -= part;
      if (absl::Status status = Pause(in); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status ReadElement(pb::io::CodedInputStream& in) {
    if (read_ == count_) return TooMany();
    uint32_t fixed = 0;
    uint64_t varint = 0;
    const bool is_fixed = type_ == DataType::kFloat32;
    if (is_fixed ? !in.ReadLittleEndian32(&fixed) : !in.ReadVarint64(&varint)) {
      return Malformed();
    }
    switch (type_) {
      case DataType::kFloat32:
        Store(fixed);
        break;
      case DataType::kBool:
        Store(static_cast<uint8_t>(varint != 0 ? 1 : 0));
        break;
      case DataType::kUint8:
        if (static_cast<uint32_t>(varint) > UINT8_MAX) {
          return Error(absl::StrCat(static_cast<uint32_t>(varint),
                                    " is no UINT8 (expected 0 to 255)"));
        }
        Store(static_cast<uint8_t>(varint));
        break;
      case DataType::kInt8: {
        const auto number = static_cast<int32_t>(varint);
        if (number < INT8_MIN || number > INT8_MAX) {
          return Error(
              absl::StrCat(number, " is no INT8 (expected -128 to 127)"));
        }
        Store(static_cast<int8_t>(number));
        break;
      }
      case DataType::kInt32:
        Store(static_cast<uint32_t>(varint));
        break;
      default:
        Store(varint);
        break;
    }
    ++read_;
    return absl::OkStatus();
  }

  std::byte* Next() { return buffer_.data() + read_ * ByteSize(type_); }

  template <typename T>
  void Store(T element) {
    std::memcpy(Next(), &element, sizeof element);
  }

  absl::Status Error(absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat(input_, ": ", what));
  }
  absl::Status Malformed() const {
    return Error("its contents are not an InferTensorContents");
  }
  absl::Status TooMany() const {
    return Error(absl::StrCat("more elements than the ", count_,
                              " that its shape needs"));
  }

  const absl::string_view input_;
  const DataType type_;
  const int field_;
  const int64_t count_;
  AlignedBuffer& buffer_;
  ReadingPauses pauses_;
  int64_t read_ = 0;
  int64_t before_ = 0;  // bytes of earlier pieces
};

}  // namespace

absl::StatusOr<AlignedBuffer> ReadTypedContents(
    absl::string_view input, DataType type, int64_t count,
    absl::Span<TensorBytes* const> pieces, HoldBytes hold) {
  if (FieldOf(type) == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(input, ": ", Name(type),
                     " has no typed contents (send it in raw_input_contents)"));
  }
  int64_t bytes = 0;
  for (const TensorBytes* piece : pieces) bytes += piece->size();
  if (count > bytes) {  // an element takes a byte at least
    return absl::InvalidArgumentError(
        absl::StrCat(input, ": contents of ", bytes, " bytes (its shape needs ",
                     count, " elements)"));
  }
  const int64_t size = count * ByteSize(type);
  if (absl::Status held = hold(size); !held.ok()) return held;
  absl::StatusOr<AlignedBuffer> buffer = AlignedBuffer::Create(size);
  if (!buffer.ok()) return buffer;
  ContentsReader reader(input, type, count, *buffer, hold);
  for (const TensorBytes* piece : pieces) {
    absl::Status status = reader.ReadPiece(piece->bytes());
    if (!status.ok()) return status;
  }
  if (absl::Status status = reader.Done(); !status.ok()) return status;
  return buffer;
}

}  // namespace attention::server
