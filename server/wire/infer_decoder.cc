#include "server/wire/infer_decoder.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/wire_format_lite.h>

#include <limits>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/wire/slice_stream.h"

namespace attention::server {
namespace {

namespace pb = google::protobuf;
using inference::ModelInferRequest;
using pb::internal::WireFormatLite;
using InputTensor = ModelInferRequest::InferInputTensor;

// protobuf's parser turns a byte of a message into many in memory: this bounds
// what a caller gets for it. Names, shapes and parameters take far less.
constexpr size_t kMostOtherBytes = 64 << 10;
// Of raw_input_contents and contents each; an entry of no bytes costs memory.
constexpr size_t kMostEntries = 64;

absl::Status NotAMessage(absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("the bytes are not a ModelInferRequest: ", what));
}

constexpr uint32_t DelimitedTag(int field_number) {
  return WireFormatLite::MakeTag(field_number,
                                 WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
}

constexpr uint32_t kRawTag =
    DelimitedTag(ModelInferRequest::kRawInputContentsFieldNumber);
constexpr uint32_t kInputTag =
    DelimitedTag(ModelInferRequest::kInputsFieldNumber);
constexpr uint32_t kContentsTag =
    DelimitedTag(InputTensor::kContentsFieldNumber);

// Takes elements out of the message and copies every other field as it is into
// a message without them, which the generated class then parses.
class InferDecoder {
 public:
  explicit InferDecoder(std::vector<grpc::Slice> slices)
      : stream_(std::move(slices)), in_(&stream_) {}

  absl::StatusOr<DecodedInferRequest> Decode() {
    if (stream_.TotalBytes() > std::numeric_limits<int>::max()) {
      return NotAMessage("more than 2^31 - 1 bytes");
    }
    in_.PushLimit(static_cast<int>(stream_.TotalBytes()));
    std::string others;
    while (in_.BytesUntilLimit() > 0) {
      if (absl::Status status = ReadField(others); !status.ok()) return status;
    }
    if (!request_.message.ParseFromString(others)) {
      return NotAMessage("a field is malformed");
    }
    return std::move(request_);
  }

 private:
  absl::Status ReadField(std::string& others) {
    const uint32_t tag = in_.ReadTag();
    if (tag == 0) return NotAMessage("a tag is cut");
    if (tag == kRawTag) return ReadElements("raw_input_contents", request_.raw);
    if (tag == kInputTag) return ReadInput(others);
    return CopyField(tag, others);
  }

  absl::Status ReadInput(std::string& others) {
    int size = 0;
    if (!ReadLength(size)) return NotAMessage("an input is cut");
    std::vector<TensorBytes>& contents = request_.contents.emplace_back();
    const auto limit = in_.PushLimit(size);
    std::string input;
    while (in_.BytesUntilLimit() > 0) {
      const uint32_t tag = in_.ReadTag();
      if (tag == 0) return NotAMessage("a tag of an input is cut");
      absl::Status status = tag == kContentsTag
                                ? ReadElements("contents", contents)
                                : CopyField(tag, input);
      if (!status.ok()) return status;
    }
    in_.PopLimit(limit);
    AppendField(kInputTag, input, others);
    return CheckSize(others);
  }

  absl::Status ReadElements(absl::string_view field,
                            std::vector<TensorBytes>& entries) {
    int size = 0;
    if (!ReadLength(size)) {
      return NotAMessage(absl::StrCat(field, " is cut"));
    }
    if (entries.size() == kMostEntries) {
      return absl::InvalidArgumentError(
          absl::StrCat(field, ": more than ", kMostEntries, " entries"));
    }
    absl::StatusOr<TensorBytes> bytes = ReadTensorBytes(stream_, in_, size);
    if (!bytes.ok()) return bytes.status();
    // Typed contents are read while decoding.
    if (&entries != &request_.raw) bytes->Gather();
    entries.push_back(*std::move(bytes));
    return absl::OkStatus();
  }

  absl::Status CopyField(uint32_t tag, std::string& out) {
    switch (WireFormatLite::GetTagWireType(tag)) {
      case WireFormatLite::WIRETYPE_LENGTH_DELIMITED:
        return CopyDelimited(tag, out);
      case WireFormatLite::WIRETYPE_START_GROUP:
        // The protocol has none: an unknown field, of any length.
        return WireFormatLite::SkipField(&in_, tag)
                   ? absl::OkStatus()
                   : NotAMessage("a group is malformed");
      default:
        break;
    }
    {
      pb::io::StringOutputStream stream(&out);
      pb::io::CodedOutputStream copy(&stream);
      if (!WireFormatLite::SkipField(&in_, tag, &copy)) {
        return NotAMessage("a field is malformed");
      }
    }
    return CheckSize(out);
  }

  absl::Status CopyDelimited(uint32_t tag, std::string& out) {
    int size = 0;
    if (!ReadLength(size)) return NotAMessage("a field is cut");
    if (static_cast<size_t>(size) > kMostOtherBytes) return TooLarge();
    std::string bytes;
    if (!in_.ReadString(&bytes, size)) return NotAMessage("a field is cut");
    AppendField(tag, bytes, out);
    return CheckSize(out);
  }

  static void AppendField(uint32_t tag, const std::string& bytes,
                          std::string& out) {
    pb::io::StringOutputStream stream(&out);
    pb::io::CodedOutputStream copy(&stream);
    copy.WriteTag(tag);
    copy.WriteVarint32(static_cast<uint32_t>(bytes.size()));
    copy.WriteString(bytes);
  }

  // The length of a field and whether so much is there.
  bool ReadLength(int& size) {
    uint32_t length = 0;
    if (!in_.ReadVarint32(&length) ||
        length > static_cast<uint32_t>(in_.BytesUntilLimit())) {
      return false;
    }
    size = static_cast<int>(length);
    return true;
  }

  static absl::Status CheckSize(const std::string& others) {
    return others.size() > kMostOtherBytes ? TooLarge() : absl::OkStatus();
  }

  static absl::Status TooLarge() {
    return absl::InvalidArgumentError(
        absl::StrCat("the fields other than tensor elements take more than ",
                     kMostOtherBytes, " bytes"));
  }

  SliceInputStream stream_;
  pb::io::CodedInputStream in_;
  DecodedInferRequest request_;
};

}  // namespace

absl::StatusOr<DecodedInferRequest> DecodeInferRequest(
    std::vector<grpc::Slice> slices) {
  return InferDecoder(std::move(slices)).Decode();
}

}  // namespace attention::server
