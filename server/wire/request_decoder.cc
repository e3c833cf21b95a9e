#include "server/wire/request_decoder.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/message.h>
#include <google/protobuf/unknown_field_set.h>
#include <google/protobuf/wire_format_lite.h>

#include <limits>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/wire/slice_stream.h"
#include "server/wire/tensor_bytes.h"
#include "server/wire/utf8.h"

namespace attention::server {

namespace pb = google::protobuf;
using pb::internal::WireFormatLite;

absl::Span<const std::byte> DecodedAttendRequest::Elements(
    const std::string& field, const v1::Tensor& tensor) const {
  const std::string& data = tensor.data();
  if (data.empty()) return {};
  const auto found = elements_.find(field);
  if (found != elements_.end()) return found->second.bytes();
  return {reinterpret_cast<const std::byte*>(data.data()), data.size()};
}

void DecodedAttendRequest::Gather(WorkerPool* workers) {
  absl::InlinedVector<TensorBytes*, 8> tensors;
  for (auto& [field, bytes] : elements_) tensors.push_back(&bytes);
  GatherAll(tensors, workers);
}

namespace {

// What a skeleton may take: an id of 256 bytes and ten shapes take far less,
// and protobuf's parser turns a byte of it into up to eight in memory.
constexpr size_t kMostSkeletonBytes = 64 << 10;
// Up to here parsing with the generated class is faster, although it copies.
constexpr size_t kMostSmallBytes = 16 << 10;
// protobuf's own bounds.
constexpr int kMostTagBytes = 5;
constexpr int kMostLengthBytes = 5;

absl::Status NotAMessage(absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("the bytes are not an AttendRequest: ", what));
}

absl::Status UnknownField(const pb::Descriptor& message, uint32_t number) {
  return absl::InvalidArgumentError(absl::StrCat(
      "field ", number, " of ", message.name(), " is unknown to this server"));
}

// Lengths and masks decide what is read of the other tensors: they are looked
// at before anything else, and are this request's own bytes, shared with
// nobody.
TensorPlace PlaceOf(const std::string& tensor_field) {
  return tensor_field == "valid_lens" || tensor_field == "attend_mask"
             ? TensorPlace::kBuffer
             : TensorPlace::kAnywhere;
}

bool HasUnknownFields(const pb::Message& message) {
  const pb::Reflection& reflection = *message.GetReflection();
  if (!reflection.GetUnknownFields(message).empty()) return true;
  const pb::Descriptor& descriptor = *message.GetDescriptor();
  for (int i = 0; i < descriptor.field_count(); ++i) {
    const pb::FieldDescriptor& field = *descriptor.field(i);
    // No field of AttendRequest is a repeated message.
    if (field.cpp_type() == pb::FieldDescriptor::CPPTYPE_MESSAGE &&
        reflection.HasField(message, &field) &&
        HasUnknownFields(reflection.GetMessage(message, &field))) {
      return true;
    }
  }
  return false;
}

// True where two members of one oneof occur: the generated class forgets the
// first, and what was unknown in it. No message within has a oneof.
bool ReplacesAMember(const uint8_t* bytes, int size) {
  const pb::Descriptor& descriptor = *v1::AttendRequest::descriptor();
  pb::io::CodedInputStream in(bytes, size);
  uint64_t seen = 0;
  while (const uint32_t tag = in.ReadTag()) {
    const pb::FieldDescriptor* field =
        descriptor.FindFieldByNumber(WireFormatLite::GetTagFieldNumber(tag));
    if (field != nullptr && field->real_containing_oneof() != nullptr) {
      const uint64_t bit = uint64_t{1}
                           << field->real_containing_oneof()->index();
      if ((seen & bit) != 0) return true;
      seen |= bit;
    }
    if (!WireFormatLite::SkipField(&in, tag)) return true;
  }
  return false;
}

// True where the slices are a small message that is one, without an unknown
// field. Where it is false, only decoding field by field says what is wrong.
bool ParseSmall(const std::vector<grpc::Slice>& slices,
                v1::AttendRequest& message) {
  size_t size = 0;
  for (const grpc::Slice& slice : slices) size += slice.size();
  if (size == 0 || size > kMostSmallBytes) return false;
  std::string gathered;
  const uint8_t* bytes = slices[0].begin();
  if (slices.size() > 1) {
    gathered.reserve(size);
    for (const grpc::Slice& slice : slices) {
      gathered.append(reinterpret_cast<const char*>(slice.begin()),
                      slice.size());
    }
    bytes = reinterpret_cast<const uint8_t*>(gathered.data());
  }
  const auto length = static_cast<int>(size);
  return !ReplacesAMember(bytes, length) &&
         message.ParseFromArray(bytes, length) && !HasUnknownFields(message);
}

void AppendVarint(uint64_t value, std::string& out) {
  uint8_t bytes[10];
  const uint8_t* end =
      pb::io::CodedOutputStream::WriteVarint64ToArray(value, bytes);
  out.append(reinterpret_cast<const char*>(bytes),
             static_cast<size_t>(end - bytes));
}

}  // namespace

// Copies a message field by field into its skeleton: the same fields in the
// same order, with one byte in place of a tensor's elements. Parsing the
// skeleton with the generated class then gives every repetition, merge and
// oneof protobuf's own meaning. A tensor's field has one buffer however often
// it occurs: `data` that comes later replaces what came before, as in protobuf,
// and whatever takes the tensor away takes the mark away.
class RequestDecoder {
 public:
  explicit RequestDecoder(std::vector<grpc::Slice> slices)
      : stream_(std::move(slices)), in_(&stream_) {}

  static bool DecodeSmall(const std::vector<grpc::Slice>& slices,
                          DecodedAttendRequest& request) {
    return ParseSmall(slices, request.message_);
  }

  absl::StatusOr<DecodedAttendRequest> Decode() {
    if (stream_.TotalBytes() > std::numeric_limits<int>::max()) {
      return NotAMessage("more than 2^31 - 1 bytes");
    }
    in_.PushLimit(static_cast<int>(stream_.TotalBytes()));
    std::string skeleton;
    if (absl::Status status = CopyMessage(*v1::AttendRequest::descriptor(),
                                          /*tensor_field=*/"", skeleton);
        !status.ok()) {
      return status;
    }
    if (!request_.message_.ParseFromString(skeleton)) {
      return NotAMessage("a field is malformed");
    }
    return std::move(request_);
  }

 private:
  // Copies fields up to the current limit. tensor_field is the name of the
  // field that holds this message where it is a Tensor.
  absl::Status CopyMessage(const pb::Descriptor& message,
                           const std::string& tensor_field, std::string& out) {
    while (in_.BytesUntilLimit() > 0) {
      uint64_t tag = 0;
      if (!ReadVarint(kMostTagBytes, tag)) return NotAMessage("a tag is cut");
      if (absl::Status status =
              CopyField(message, static_cast<uint32_t>(tag), tensor_field, out);
          !status.ok()) {
        return status;
      }
      if (out.size() > kMostSkeletonBytes) {
        return absl::InvalidArgumentError(
            absl::StrCat("the fields other than tensor data take more than ",
                         kMostSkeletonBytes, " bytes"));
      }
    }
    return absl::OkStatus();
  }

  absl::Status CopyField(const pb::Descriptor& message, uint32_t tag,
                         const std::string& tensor_field, std::string& out) {
    const auto number =
        static_cast<uint32_t>(WireFormatLite::GetTagFieldNumber(tag));
    const auto wire_type = WireFormatLite::GetTagWireType(tag);
    const pb::FieldDescriptor* field =
        message.FindFieldByNumber(static_cast<int>(number));
    if (field == nullptr) return UnknownField(message, number);
    const bool packed = field->is_packable() &&
                        wire_type == WireFormatLite::WIRETYPE_LENGTH_DELIMITED;
    if (!packed && wire_type != WireFormatLite::WireTypeForFieldType(
                                    static_cast<WireFormatLite::FieldType>(
                                        field->type()))) {
      // To protobuf this is an unknown field, too.
      return absl::InvalidArgumentError(
          absl::StrCat(field->name(), ": wire type ",
                       static_cast<int>(wire_type), " is not its own"));
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
        return CopyDelimited(*field, tensor_field, out);
      default:
        return NotAMessage("it has a group");
    }
  }

  absl::Status CopyVarint(const pb::FieldDescriptor& field, std::string& out) {
    uint64_t value = 0;
    if (!in_.ReadVarint64(&value)) return Cut(field);
    AppendVarint(value, out);
    return absl::OkStatus();
  }

  absl::Status CopyDelimited(const pb::FieldDescriptor& field,
                             const std::string& tensor_field,
                             std::string& out) {
    uint64_t length = 0;
    if (!ReadVarint(kMostLengthBytes, length) ||
        length > static_cast<uint64_t>(in_.BytesUntilLimit())) {
      return Cut(field);
    }
    const auto size = static_cast<int>(length);
    if (!tensor_field.empty() &&
        field.number() == v1::Tensor::kDataFieldNumber) {
      return GatherElements(tensor_field, size, out);
    }
    if (field.message_type() != nullptr) {
      return CopySubmessage(field, size, out);
    }
    if (length > kMostSkeletonBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat(field.name(), ": takes ", length, " bytes (at most ",
                       kMostSkeletonBytes, " are read)"));
    }
    AppendVarint(length, out);
    const size_t begin = out.size();
    if (absl::Status status = CopyRaw(field, size, out); !status.ok()) {
      return status;
    }
    if (field.type() == pb::FieldDescriptor::TYPE_STRING &&
        !IsUtf8(absl::string_view(out).substr(begin))) {
      return absl::InvalidArgumentError(
          absl::StrCat(field.name(), ": is not UTF-8"));
    }
    return absl::OkStatus();
  }

  absl::Status CopySubmessage(const pb::FieldDescriptor& field, int size,
                              std::string& out) {
    const pb::Descriptor& message = *field.message_type();
    const bool is_tensor = &message == v1::Tensor::descriptor();
    const auto limit = in_.PushLimit(size);
    std::string inner;
    if (absl::Status status = CopyMessage(
            message, is_tensor ? field.name() : std::string(), inner);
        !status.ok()) {
      return status;
    }
    in_.PopLimit(limit);
    AppendVarint(inner.size(), out);
    out += inner;
    return absl::OkStatus();
  }

  // The one copy of a tensor's bytes, if any; `size` bytes are there.
  absl::Status GatherElements(const std::string& tensor_field, int size,
                              std::string& out) {
    request_.elements_.erase(tensor_field);
    AppendVarint(size > 0 ? 1 : 0, out);
    if (size == 0) return absl::OkStatus();
    out.push_back('\1');
    absl::StatusOr<TensorBytes> elements =
        ReadTensorBytes(stream_, in_, size, PlaceOf(tensor_field));
    if (absl::IsInvalidArgument(elements.status())) {
      return NotAMessage(absl::StrCat(tensor_field, ": data is cut"));
    }
    if (!elements.ok()) return elements.status();
    request_.elements_.emplace(tensor_field, *std::move(elements));
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

  static absl::Status Cut(const pb::FieldDescriptor& field) {
    return NotAMessage(absl::StrCat(field.name(), " is cut or malformed"));
  }

  SliceInputStream stream_;
  pb::io::CodedInputStream in_;
  DecodedAttendRequest request_;
};

absl::StatusOr<DecodedAttendRequest> DecodeAttendRequest(
    std::vector<grpc::Slice> slices) {
  DecodedAttendRequest request;
  if (RequestDecoder::DecodeSmall(slices, request)) return request;
  return DecodeFieldByField(std::move(slices));
}

absl::StatusOr<DecodedAttendRequest> DecodeFieldByField(
    std::vector<grpc::Slice> slices) {
  return RequestDecoder(std::move(slices)).Decode();
}

}  // namespace attention::server
