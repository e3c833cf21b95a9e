#include "server/wire/sequence_steps.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "attention/v1/attention.pb.h"
#include "inference/grpc_service.pb.h"
#include "server/wire/infer_values.h"
#include "server/wire/message_pieces.h"

namespace attention::server {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

// Of all entries together, as SplitMessage allows for all that is no tensor.
constexpr int kMostBytesOfEntries = 64 << 10;
constexpr int kLeastHeaderBytes = 2;

struct FoundSteps {
  SequenceStep step;
  int room = kMostBytesOfEntries;
};

constexpr uint32_t TagOf(int field) {
  return WireFormatLite::MakeTag(field,
                                 WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
}

// What a small field holds.
bool ReadBytes(CodedInputStream& in, int& room, std::string& bytes) {
  int size = 0;
  room -= kLeastHeaderBytes;
  if (!in.ReadVarintSizeAsInt(&size) || size > room) return false;
  room -= size;
  return in.ReadString(&bytes, size);
}

bool ReadEntry(CodedInputStream& in, FoundSteps& found) {
  std::string bytes;
  v1::SequenceLayer entry;
  if (!ReadBytes(in, found.room, bytes)) return false;
  if (!entry.ParseFromString(bytes)) return false;
  found.step.layers.push_back(absl::StrCat(entry.layer(), " ", entry.name()));
  return true;
}

bool ReadSequences(CodedInputStream& in, FoundSteps& found) {
  int size = 0;
  if (!in.ReadVarintSizeAsInt(&size)) return false;
  const CodedInputStream::Limit limit = in.PushLimit(size);
  while (const uint32_t tag = in.ReadTag()) {
    const bool append = tag == TagOf(v1::Sequences::kAppendFieldNumber);
    found.step.appends = found.step.appends || append;
    const bool read = tag == TagOf(v1::Sequences::kEntriesFieldNumber)
                          ? ReadEntry(in, found)
                          : WireFormatLite::SkipField(&in, tag);
    if (!read) return false;
  }
  in.PopLimit(limit);
  return true;
}

// An entry of the map of parameters, which is a message with a key and a value.
bool ReadParameter(CodedInputStream& in, FoundSteps& found) {
  std::string bytes;
  if (!ReadBytes(in, found.room, bytes)) return false;
  // A message that has nothing but this entry.
  inference::ModelInferRequest message;
  if (!message.ParseFromString(absl::StrCat(
          FieldHeader(inference::ModelInferRequest::kParametersFieldNumber,
                      static_cast<int64_t>(bytes.size())),
          bytes))) {
    return false;
  }
  const auto sequence = ReadSequence(message.parameters());
  if (!sequence.ok() || !*sequence) return true;
  found.step.layers.push_back((*sequence)->id);
  found.step.appends = true;
  return true;
}

// Hands over the message's fields of one number, and passes over the others.
SequenceStep StepOf(const grpc::ByteBuffer& message, int field,
                    bool (*read)(CodedInputStream& in, FoundSteps& found)) {
  FoundSteps found;
  // The reader changes nothing of it.
  grpc::ProtoBufferReader reader(const_cast<grpc::ByteBuffer*>(&message));
  if (!reader.status().ok()) return {};
  CodedInputStream in(&reader);
  while (const uint32_t tag = in.ReadTag()) {
    const bool good = tag == TagOf(field) ? read(in, found)
                                          : WireFormatLite::SkipField(&in, tag);
    if (!good) return {};
  }
  return std::move(found.step);
}

}  // namespace

SequenceStep StepOfAttend(const grpc::ByteBuffer& message) {
  return StepOf(message, v1::AttendRequest::kSequencesFieldNumber,
                ReadSequences);
}

SequenceStep StepOfInfer(const grpc::ByteBuffer& message) {
  return StepOf(message, inference::ModelInferRequest::kParametersFieldNumber,
                ReadParameter);
}

}  // namespace attention::server
