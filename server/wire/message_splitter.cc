#include "server/wire/message_splitter.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <cstring>
#include <limits>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "server/utf8.h"
#include "server/wire/message_pieces.h"
#include "server/wire/slice_stream.h"

namespace attention::server {
namespace {

namespace pb = google::protobuf;
using pb::internal::WireFormatLite;

// What a skeleton may take: an id of 256 bytes and a dozen shapes take far
// less, and protobuf's parser turns a byte of it into up to eight in memory.
constexpr size_t kMostOtherBytes = 64 << 10;
// An entry costs memory, even one of a byte.
constexpr size_t kMostElements = 64;
// protobuf's own bounds.
constexpr int kMostTagBytes = 5;
constexpr int kMostLengthBytes = 5;
constexpr char kMarkField[] = "bytes_contents";

// A mark is an index.
using Mark = uint16_t;

void AppendVarint(uint64_t value, std::string& out) {
  uint8_t bytes[10];
  const uint8_t* end =
      pb::io::CodedOutputStream::WriteVarint64ToArray(value, bytes);
  out.append(reinterpret_cast<const char*>(bytes),
             static_cast<size_t>(end - bytes));
}

}  // namespace

TensorBytes* MessageElements::Find(absl::string_view mark) {
  Mark index = 0;
  if (mark.size() != sizeof index) return nullptr;
  std::memcpy(&index, mark.data(), sizeof index);
  return &elements_[index];
}

void MessageElements::Gather(WorkerPool* workers) {
  absl::InlinedVector<TensorBytes*, 8> tensors;
  for (TensorBytes& tensor : elements_) tensors.push_back(&tensor);
  GatherAll(tensors, workers);
}

// Copies a message field by field into its skeleton: the same fields in the
// same order, with a mark in place of elements. Parsing the skeleton with the
// generated class then gives every repetition, merge and oneof protobuf's own
// meaning: whatever takes a tensor away takes its mark away.
class MessageSplitter {
 public:
  MessageSplitter(std::vector<grpc::Slice> slices, const SplitRules& rules)
      : rules_(rules), stream_(std::move(slices)), in_(&stream_) {}

  absl::StatusOr<MessageElements> Split(pb::Message& message) {
    if (stream_.TotalBytes() > std::numeric_limits<int>::max()) {
      return NotAMessage("more than 2^31 - 1 bytes");
    }
    in_.PushLimit(static_cast<int>(stream_.TotalBytes()));
    std::string skeleton;
    absl::Status status = CopyMessage(*rules_.message, "", skeleton);
    if (!status.ok()) return status;
    if (!message.ParseFromString(skeleton)) {
      return NotAMessage("a field is malformed");
    }
    return std::move(result_);
  }

 private:
  // Copies fields up to the current limit. `within` is the name of the field
  // that holds this message.
  absl::Status CopyMessage(const pb::Descriptor& message,
                           absl::string_view within, std::string& out) {
    while (in_.BytesUntilLimit() > 0) {
      uint64_t tag = 0;
      if (!ReadVarint(kMostTagBytes, tag)) return NotAMessage("a tag is cut");
      absl::Status status =
          CopyField(message, static_cast<uint32_t>(tag), within, out);
      if (!status.ok()) return status;
      if (out.size() > kMostOtherBytes) {
        return absl::InvalidArgumentError(absl::StrCat(
            "the fields other than tensor elements take more than ",
            kMostOtherBytes, " bytes"));
      }
    }
    return absl::OkStatus();
  }

  absl::Status CopyField(const pb::Descriptor& message, uint32_t tag,
                         absl::string_view within, std::string& out) {
    const auto number = WireFormatLite::GetTagFieldNumber(tag);
    const auto wire_type = WireFormatLite::GetTagWireType(tag);
    const pb::FieldDescriptor* field = message.FindFieldByNumber(number);
    if (field == nullptr || !IsOwnType(*field, wire_type)) {
      return Unknown(message, field, tag);
    }
    AppendVarint(tag, out);
    switch (wire_type) {
      case WireFormatLite::WIRETYPE_VARINT:
        return CopyVarint(*field, out);
      case WireFormatLite::WIRETYPE_FIXED64:
        return CopyRaw(*field, sizeof(uint64_t), out);
      case WireFormatLite::WIRETYPE_FIXED32:
        return CopyRaw(*field, sizeof(uint32_t), out);
      case WireFormatLite::WIRETYPE_LENGTH_DELIMITED:
        return CopyDelimited(*field, within, out);
      default:
        return NotAMessage("it has a group");
    }
  }

  static bool IsOwnType(const pb::FieldDescriptor& field,
                        WireFormatLite::WireType wire_type) {
    if (field.is_packable() &&
        wire_type == WireFormatLite::WIRETYPE_LENGTH_DELIMITED) {
      return true;
    }
    return wire_type ==
           WireFormatLite::WireTypeForFieldType(
               static_cast<WireFormatLite::FieldType>(field.type()));
  }

  // To protobuf, a field of another wire type is unknown, too.
  absl::Status Unknown(const pb::Descriptor& message,
                       const pb::FieldDescriptor* field, uint32_t tag) {
    if (rules_.unknown == UnknownFields::kSkip) {
      return WireFormatLite::SkipField(&in_, tag)
                 ? absl::OkStatus()
                 : NotAMessage("a field is malformed");
    }
    if (field == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("field ", WireFormatLite::GetTagFieldNumber(tag), " of ",
                       message.name(), " is unknown to this server"));
    }
    return absl::InvalidArgumentError(
        absl::StrCat(field->name(), ": wire type ",
                     static_cast<int>(WireFormatLite::GetTagWireType(tag)),
                     " is not its own"));
  }

  absl::Status CopyVarint(const pb::FieldDescriptor& field, std::string& out) {
    uint64_t value = 0;
    if (!in_.ReadVarint64(&value)) return Cut(field);
    AppendVarint(value, out);
    return absl::OkStatus();
  }

  absl::Status CopyDelimited(const pb::FieldDescriptor& field,
                             absl::string_view within, std::string& out) {
    uint64_t length = 0;
    if (!ReadVarint(kMostLengthBytes, length) ||
        length > static_cast<uint64_t>(in_.BytesUntilLimit())) {
      return Cut(field);
    }
    const auto size = static_cast<int>(length);
    if (absl::c_linear_search(rules_.elements, &field)) {
      return TakeElements(field, within, size, out);
    }
    if (field.message_type() != nullptr) {
      return CopySubmessage(field, size, out);
    }
    return CopyText(field, size, out);
  }

  absl::Status CopySubmessage(const pb::FieldDescriptor& field, int size,
                              std::string& out) {
    const auto limit = in_.PushLimit(size);
    std::string inner;
    absl::Status status =
        CopyMessage(*field.message_type(), field.name(), inner);
    if (!status.ok()) return status;
    in_.PopLimit(limit);
    AppendVarint(inner.size(), out);
    out += inner;
    return absl::OkStatus();
  }

  // Bytes, a string or packed numbers.
  absl::Status CopyText(const pb::FieldDescriptor& field, int size,
                        std::string& out) {
    if (static_cast<size_t>(size) > kMostOtherBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat(field.name(), ": takes ", size, " bytes (at most ",
                       kMostOtherBytes, " are read)"));
    }
    AppendVarint(static_cast<uint64_t>(size), out);
    const size_t begin = out.size();
    absl::Status status = CopyRaw(field, size, out);
    if (!status.ok()) return status;
    if (field.type() == pb::FieldDescriptor::TYPE_STRING &&
        !IsUtf8(absl::string_view(out).substr(begin))) {
      return absl::InvalidArgumentError(
          absl::StrCat(field.name(), ": is not UTF-8"));
    }
    return absl::OkStatus();
  }

  // The one copy of a tensor's bytes, if any; `size` bytes are there.
  absl::Status TakeElements(const pb::FieldDescriptor& field,
                            absl::string_view within, int size,
                            std::string& out) {
    std::string mark;
    if (size > 0) {
      const auto index = static_cast<Mark>(result_.elements_.size());
      if (index == kMostElements) {
        return absl::InvalidArgumentError(absl::StrCat(
            field.name(), ": more than ", kMostElements, " tensors"));
      }
      absl::StatusOr<TensorBytes> elements =
          ReadTensorBytes(stream_, in_, size);
      if (absl::IsInvalidArgument(elements.status())) {
        return NotAMessage(absl::StrCat(within, within.empty() ? "" : ": ",
                                        field.name(), " is cut"));
      }
      if (!elements.ok()) return elements.status();
      result_.elements_.push_back(*std::move(elements));
      mark.assign(reinterpret_cast<const char*>(&index), sizeof index);
    }
    if (const pb::Descriptor* message = field.message_type()) {
      mark = FieldHeader(message->FindFieldByName(kMarkField)->number(),
                         static_cast<int64_t>(mark.size())) +
             mark;
    }
    AppendVarint(mark.size(), out);
    out += mark;
    return absl::OkStatus();
  }

  absl::Status CopyRaw(const pb::FieldDescriptor& field, int size,
                       std::string& out) {
    if (in_.BytesUntilLimit() < size) return Cut(field);
    const size_t begin = out.size();
    out.resize(begin + static_cast<size_t>(size));
    return in_.ReadRaw(out.data() + begin, size) ? absl::OkStatus()
                                                 : Cut(field);
  }

  bool ReadVarint(int most_bytes, uint64_t& value) {
    const int begin = in_.CurrentPosition();
    return in_.ReadVarint64(&value) &&
           in_.CurrentPosition() - begin <= most_bytes;
  }

  absl::Status NotAMessage(absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat(
        "the bytes are not ", rules_.message->name()[0] == 'A' ? "an " : "a ",
        rules_.message->name(), ": ", what));
  }
  absl::Status Cut(const pb::FieldDescriptor& field) const {
    return NotAMessage(absl::StrCat(field.name(), " is cut or malformed"));
  }

  const SplitRules& rules_;
  SliceInputStream stream_;
  pb::io::CodedInputStream in_;
  MessageElements result_;
};

absl::StatusOr<MessageElements> SplitMessage(std::vector<grpc::Slice> slices,
                                             const SplitRules& rules,
                                             pb::Message& message) {
  return MessageSplitter(std::move(slices), rules).Split(message);
}

}  // namespace attention::server
