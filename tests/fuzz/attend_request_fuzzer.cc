// Decoding of AttendRequest against protobuf's own parser: what we accept it
// accepts with the same content, and what it accepts without unknown fields we
// accept, however the bytes are cut into slices.
#include <google/protobuf/message.h>
#include <google/protobuf/stubs/logging.h>
#include <google/protobuf/unknown_field_set.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "attention/v1/attention.pb.h"
#include "core/validate.h"
#include "server/wire/problem_translation.h"
#include "server/wire/reply_encoder.h"
#include "server/wire/request_decoder.h"
#include "tests/fuzz/expect.h"
#include "tests/fuzz/slice_cuts.h"

namespace attention::server {
namespace {

namespace pb = google::protobuf;

bool HasUnknownFields(const pb::Message& message) {
  const pb::Reflection& reflection = *message.GetReflection();
  if (!reflection.GetUnknownFields(message).empty()) return true;
  std::vector<const pb::FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  return std::any_of(fields.begin(), fields.end(), [&](const auto* field) {
    return field->message_type() != nullptr &&
           HasUnknownFields(reflection.GetMessage(message, field));
  });
}

// Puts the elements back in place of their marks, for a comparison as a whole.
void Restore(const DecodedAttendRequest& decoded, pb::Message& message) {
  const pb::Reflection& reflection = *message.GetReflection();
  std::vector<const pb::FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const auto* field : fields) {
    if (field->message_type() == nullptr) continue;
    pb::Message* inner = reflection.MutableMessage(&message, field);
    if (field->message_type() != v1::Tensor::descriptor()) {
      Restore(decoded, *inner);
      continue;
    }
    auto& tensor = static_cast<v1::Tensor&>(*inner);
    const auto elements = decoded.Elements(field->name(), tensor);
    tensor.set_data(elements.data(), elements.size());
  }
}

// Every step up to computing, as a server takes them.
void Serve(const DecodedAttendRequest& decoded) {
  const auto problem = TranslateToProblem(decoded);
  if (!problem.ok()) return;
  const auto valid = Validate(*problem);
  if (!valid.ok()) return;
  ReplyBuilder reply(decoded.message().id(), *valid);
  if (!reply.CheckFits(1 << 20).ok() || !reply.Allocate().ok()) return;
  Expect(static_cast<int64_t>(std::move(reply).BuildForStream({}).Length()) <=
             1 << 20,
         "a reply that fits is not longer than its bound");
}

void Compare(const uint8_t* data, size_t size) {
  v1::AttendRequest expected;
  const bool parses = expected.ParseFromArray(data, static_cast<int>(size));
  auto whole = DecodeAttendRequest({grpc::Slice(data, size)});
  auto cut = DecodeAttendRequest(test::CutIntoSlices(data, size));
  Expect(whole.status() == cut.status(), "cuts do not change the outcome");
  auto thorough = DecodeFieldByField(test::CutIntoSlices(data, size));
  Expect(whole.status() == thorough.status(),
         "small messages are decoded as large ones are");
  if (!whole.ok()) {
    // protobuf forgets the unknown fields of a scoring that another replaced.
    const bool replaced =
        expected.scoring_case() != v1::AttendRequest::SCORING_NOT_SET;
    const bool too_long = size > 64 << 10;
    Expect(!parses || HasUnknownFields(expected) || replaced || too_long,
           "what protobuf accepts is accepted");
    return;
  }
  Expect(parses, "what is accepted is a message to protobuf");
  for (auto* decoded : {&whole, &cut, &thorough}) {
    v1::AttendRequest message = (*decoded)->message();
    (*decoded)->Gather(nullptr);
    Restore(**decoded, message);
    Expect(message.SerializeAsString() == expected.SerializeAsString(),
           "every field and every element is the same");
  }
  Serve(*cut);
}

}  // namespace
}  // namespace attention::server

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // It reports strings that are not UTF-8 on stderr.
  static const auto previous_handler = google::protobuf::SetLogHandler(nullptr);
  static_cast<void>(previous_handler);
  attention::server::Compare(data, size);
  return 0;
}
